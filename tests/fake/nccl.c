/* A fake libnccl.so.2 that really moves the values: ranks are processes that meet in one file of shared memory, whose path stands in the
   unique id. A buffer is host memory, as in the fake libcuda. As in NCCL, a call only puts work into a queue; it is done when the
   communicator is asked for its errors. Keys beside those of script.h, where N is a rank:

   version             as NCCL_VERSION_CODE (22809)
   shared              a folder for the file that the ranks meet in
   warn.FUNCTION       what NCCL would write on stdout before the function fails
   N.act               FUNCTION ACT: what rank N does first in that function (crash, hang, exit 3)
   after               how many calls of that function go well before N.act
   wrong               FUNCTION N: the result of this operation is wrong on rank N, in the last element
   drops               FUNCTION N: rank N's part is left out of what the others get
   segment             NAME: each rank makes and maps /dev/shm/nccl-NAME-N when it joins; the names go when all have joined
   N.async             FUNCTION CODE: the error that rank N's communicator tells of after that operation

   -DWITHOUT_<function> leaves a function out; -DCRASH_AT_LOAD crashes in a constructor. */

#define SCRIPT "FAKE_NCCL"
#include "script.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

enum { RANKS = 8, PIECE = 1 << 16 };

struct meeting {
    int arrived, round;
    /* Of every rank, a piece of what it sends. */
    float piece[RANKS][PIECE];
};

struct comm { int rank, ranks, error; struct meeting *all; };

struct job { const char *what; const float *from; float *to; size_t sent, received; struct comm *comm; };

static struct job queue[64];
static int queued, grouped;
static char last_error[512];

#ifdef CRASH_AT_LOAD
__attribute__((constructor)) static void crash(void) { *(volatile int *)0 = 1; }
#endif

/* The text of a key of one rank. */
static int of_rank(int rank, const char *what, char *value, size_t size) {
    char key[64];
    snprintf(key, sizeof key, "%d.%s", rank, what);
    return lookup(key, value, size);
}

/* The act that the script gives this rank in this function, then the function's code. */
static int step(const char *function, int rank) {
    static unsigned long long calls;
    char value[256], name[64], act[64], warning[64];
    if (of_rank(rank, "act", value, sizeof value) && sscanf(value, "%63s %63s", name, act) == 2 && strcmp(name, function) == 0 && calls++ >= number("after", 0)) {
        if (strcmp(act, "crash") == 0) *(volatile int *)0 = 1;
        if (strcmp(act, "hang") == 0) for (;;) pause();
        if (strcmp(act, "exit") == 0) exit(3);
    }
    int code = call(function, rank);
    snprintf(warning, sizeof warning, "warn.%s", function);
    if (code && lookup(warning, value, sizeof value)) {
        printf("[2026-01-02 03:04:05] node:%d:%d [0] fake.cc:1 NCCL WARN %s\n", (int)getpid(), (int)getpid(), value);
        fflush(stdout);
        snprintf(last_error, sizeof last_error, "%s", value);
    }
    return code;
}

static void meet(struct comm *comm) {
    struct meeting *all = comm->all;
    int round = __atomic_load_n(&all->round, __ATOMIC_SEQ_CST);
    if (__atomic_add_fetch(&all->arrived, 1, __ATOMIC_SEQ_CST) == comm->ranks) {
        __atomic_store_n(&all->arrived, 0, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&all->round, 1, __ATOMIC_SEQ_CST);
    } else {
        for (int turn = 0; __atomic_load_n(&all->round, __ATOMIC_SEQ_CST) == round; turn++) if (turn > 50) usleep(50); else sched_yield();
    }
}

/* Whether the script says KEY `FUNCTION N` of this function; the rank. */
static int scripted(const char *key, const char *function) {
    char value[128], name[64];
    int rank;
    return lookup(key, value, sizeof value) && sscanf(value, "%63s %d", name, &rank) == 2 && strcmp(name, function) == 0 ? rank : -1;
}

/* What the ranks sent from `begin` on, `count` elements of each, lies in the pieces. */
static void receive(struct job *job, size_t begin, size_t count) {
    struct comm *comm = job->comm;
    int left_out = scripted("drops", job->what), before = (comm->rank + comm->ranks - 1) % comm->ranks;
    for (int r = 0; r < comm->ranks; r++) {
        float *piece = comm->all->piece[r];
        for (size_t i = 0; i < count; i++) {
            size_t at = begin + i;
            float value = r == left_out && r != comm->rank ? 0 : piece[i];
            if (strcmp(job->what, "ncclAllReduce") == 0) job->to[at] = (r ? job->to[at] : 0) + value;
            if (strcmp(job->what, "ncclBroadcast") == 0 && r == 0) job->to[at] = value;
            if (strcmp(job->what, "ncclAllGather") == 0) job->to[(size_t)r * job->sent + at] = value;
            if (strcmp(job->what, "ncclSend") == 0 && r == before) job->to[at] = value;
            if (strcmp(job->what, "ncclReduceScatter") == 0 && at / job->received == (size_t)comm->rank) {
                float *to = &job->to[at % job->received];
                *to = (r ? *to : 0) + value;
            }
        }
    }
}

static void work(struct job *job) {
    struct comm *comm = job->comm;
    for (size_t begin = 0; begin < job->sent; begin += PIECE) {
        size_t count = job->sent - begin < PIECE ? job->sent - begin : PIECE;
        memcpy(comm->all->piece[comm->rank], job->from + begin, count * sizeof(float));
        meet(comm);
        receive(job, begin, count);
        meet(comm);
    }
    if (scripted("wrong", job->what) == comm->rank) job->to[job->received - 1] += 1;
}

static void put(const char *what, const void *from, size_t sent, void *to, size_t received, struct comm *comm) {
    if (queued < 64) queue[queued++] = (struct job){what, from, to, sent, received, comm};
}

int ncclGetVersion(int *version) { int code = step("ncclGetVersion", -1); if (!code) *version = (int)number("version", 22809); return code; }

const char *ncclGetLastError(void *comm) { (void)comm; return last_error; }

struct id { char text[128]; };

#ifndef WITHOUT_ncclGetUniqueId
int ncclGetUniqueId(struct id *id) {
    int code = step("ncclGetUniqueId", 0);
    char folder[96] = "/tmp";
    if (code) return code;
    lookup("shared", folder, sizeof folder);
    memset(id, 0, sizeof *id);
    snprintf(id->text, sizeof id->text, "%s/meeting-%d", folder, (int)getpid());
    return 0;
}
#endif

/* As NCCL does with what it shares within a machine; the name is in `path`, or it is empty. */
static void segment(int rank, char *path, size_t size) {
    char name[64];
    path[0] = 0;
    if (!lookup("segment", name, sizeof name)) return;
    snprintf(path, size, "/dev/shm/nccl-%s-%d", name, rank);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || ftruncate(file, 4096) || mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED) path[0] = 0;
    close(file);
}

int ncclCommInitRank(struct comm **out, int ranks, struct id id, int rank) {
    char shared[128];
    segment(rank, shared, sizeof shared);
    int code = step("ncclCommInitRank", rank);
    if (code) return code;
    if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks) return 4;
    int file = open(id.text, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(struct meeting))) return 2;
    struct comm *comm = calloc(1, sizeof *comm);
    comm->all = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (comm->all == MAP_FAILED) return 2;
    comm->rank = rank;
    comm->ranks = ranks;
    meet(comm);
    unlink(id.text);
    if (shared[0]) unlink(shared);
    *out = comm;
    return 0;
}

int ncclCommDestroy(struct comm *comm) { return step("ncclCommDestroy", comm->rank); }

int ncclCommGetAsyncError(struct comm *comm, int *code) {
    char value[128], name[64];
    for (int i = 0; i < queued; i++) {
        work(&queue[i]);
        if (of_rank(comm->rank, "async", value, sizeof value) && sscanf(value, "%63s %d", name, code) == 2 && strcmp(name, queue[i].what) == 0) comm->error = *code;
    }
    queued = 0;
    *code = comm->error;
    return 0;
}

int ncclGroupStart(void) { grouped++; return 0; }

int ncclGroupEnd(void) { grouped--; return 0; }

#define OP(name, comm) do { int code = step(name, (comm)->rank); if (code) return code; } while (0)

#ifndef WITHOUT_ncclAllReduce
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, struct comm *comm, void *stream) {
    (void)stream;
    OP("ncclAllReduce", comm);
    if (type != 7 || op != 0) return 4;
    put("ncclAllReduce", from, count, to, count, comm);
    return 0;
}
#endif

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, struct comm *comm, void *stream) {
    (void)stream;
    OP("ncclBroadcast", comm);
    if (type != 7 || root != 0) return 4;
    put("ncclBroadcast", from, count, to, count, comm);
    return 0;
}

int ncclAllGather(const void *from, void *to, size_t count, int type, struct comm *comm, void *stream) {
    (void)stream;
    OP("ncclAllGather", comm);
    if (type != 7) return 4;
    put("ncclAllGather", from, count, to, count * (size_t)comm->ranks, comm);
    return 0;
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, struct comm *comm, void *stream) {
    (void)stream;
    OP("ncclReduceScatter", comm);
    if (type != 7 || op != 0) return 4;
    put("ncclReduceScatter", from, count * (size_t)comm->ranks, to, count, comm);
    return 0;
}

/* Sends to the next rank and receives from the one before, in one group: nothing else is asked of it here. */
static const void *sending;

int ncclSend(const void *from, size_t count, int type, int peer, struct comm *comm, void *stream) {
    (void)stream, (void)count;
    OP("ncclSend", comm);
    if (type != 7 || !grouped || peer != (comm->rank + 1) % comm->ranks) return 4;
    sending = from;
    return 0;
}

int ncclRecv(void *to, size_t count, int type, int peer, struct comm *comm, void *stream) {
    (void)stream;
    OP("ncclRecv", comm);
    if (type != 7 || !grouped || peer != (comm->rank + comm->ranks - 1) % comm->ranks) return 4;
    put("ncclSend", sending, count, to, count, comm);
    return 0;
}
