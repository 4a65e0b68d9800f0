// The small kernel in a program of its own, for machines without Python.
#include <cstdio>

const char* words();

int main() { std::printf("loaded main says %s\n", words()); }
