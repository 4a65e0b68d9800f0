//! A message as another machine would have printed it: other versions, paths, architectures, languages, and what stands round it.

use regex::bytes::{Captures, RegexBuilder};

/// Numbers that are always the same (SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.roll(from.len())]
    }
}

pub type Change = fn(&str, &mut Dice) -> Vec<u8>;

pub const CHANGES: &[(&str, Change)] = &[
    ("paths", paths),
    ("versions", versions),
    ("architectures", architectures),
    ("languages", languages),
    ("curly quotes", curly),
    ("docker", docker),
    ("GitHub", github),
    ("ranks", ranks),
    ("colours", colours),
    ("CRLF", crlf),
    ("frames of pip", framed),
];

/// `pattern` replaced by what `by` makes of it and of its first group.
fn each(text: &str, pattern: &str, mut by: impl FnMut(&str, &str) -> String) -> String {
    let regex = RegexBuilder::new(pattern).unicode(false).build().unwrap();
    let part = |found: &Captures<'_>, at: usize| {
        found.get(at).map_or_else(String::new, |part| String::from_utf8_lossy(part.as_bytes()).into_owned())
    };
    let new = regex.replace_all(text.as_bytes(), |found: &Captures<'_>| by(&part(found, 0), &part(found, 1)).into_bytes());
    String::from_utf8_lossy(&new).into_owned()
}

fn paths(text: &str, dice: &mut Dice) -> Vec<u8> {
    let home = dice.pick(&["/home/data/li", "/data/users/ops", "/mnt/nfs/home/x7", "/srv/app"]);
    let conda = dice.pick(&["/opt/miniforge3", "/home/li/anaconda3", "/usr/local/miniconda", "/databricks/python3"]);
    let text =
        each(text, r"(/(?:home/\w+|root|opt|usr/local))/(?:conda|miniconda3|anaconda3|miniconda|anaconda)\b", |_, _| conda.to_owned());
    let text = each(&text, r"/home/\w+|/root\b", |_, _| home.to_owned());
    let text = each(&text, r"envs/\w+", |_, _| format!("envs/{}", dice.pick(&["llm", "ds-15", "py_train"])));
    each(&text, r"line \d+", |_, _| format!("line {}", 10 + dice.roll(3000))).into_bytes()
}

fn versions(text: &str, dice: &mut Dice) -> Vec<u8> {
    let python = dice.pick(&["8", "9", "10", "11", "12", "13"]);
    let text = each(text, r"python3\.\d+", |_, _| format!("python3.{python}"));
    let text = each(&text, r"\b(cpython-|cp|py)3\d+", |_, kind| format!("{kind}3{python}"));
    let text = each(&text, r"/gcc/x86_64-linux-gnu/\d+", |_, _| format!("/gcc/x86_64-linux-gnu/{}", dice.pick(&["9", "11", "13", "14"])));
    let text = each(&text, r"GLIBC_2\.\d+", |_, _| format!("GLIBC_2.{}", 27 + dice.roll(15)));
    let text = each(&text, r"GLIBCXX_3\.4\.\d+", |_, _| format!("GLIBCXX_3.4.{}", 26 + dice.roll(9)));
    let text = each(&text, r"libcudart\.so\.\d+(?:\.\d+)?", |_, _| format!("libcudart.so.{}", dice.pick(&["11.0", "12", "13"])));
    each(&text, r"gcc versions later than \d+", |_, _| format!("gcc versions later than {}", 6 + dice.roll(11))).into_bytes()
}

/// A new one for a new one: which of them is too old for what is another problem.
fn architectures(text: &str, dice: &mut Dice) -> Vec<u8> {
    let newer = dice.pick(&["86", "89", "90", "100", "103", "120", "121"]);
    each(text, r"\b(compute|sm)_(?:8\d|9\d|1\d\d)\b", |_, kind| format!("{kind}_{newer}")).into_bytes()
}

/// What gcc, ld, bash and the C library say in other languages, from their own catalogues.
const LANGUAGES: &[&[(&str, &str)]] = &[
    &[
        ("No such file or directory", "Datei oder Verzeichnis nicht gefunden"),
        ("cannot open shared object file", "Kann die Shared-Object-Datei nicht öffnen"),
        ("Permission denied", "Keine Berechtigung"),
        ("No space left on device", "Auf dem Gerät ist kein Speicherplatz mehr verfügbar"),
        ("Cannot allocate memory", "Nicht genügend Hauptspeicher verfügbar"),
        ("Read-only file system", "Das Dateisystem ist nur lesbar"),
        ("file too short", "Die Datei ist zu kurz"),
        ("invalid ELF header", "Ungültiger ELF-Header"),
        ("command not found", "Kommando nicht gefunden."),
        ("fatal error:", "schwerwiegender Fehler:"),
    ],
    &[
        ("No such file or directory", "Aucun fichier ou dossier de ce type"),
        ("cannot open shared object file", "Ne peut ouvrir le fichier d'objet partagé"),
        ("Permission denied", "Permission non accordée"),
        ("No space left on device", "Aucun espace disponible sur le périphérique"),
        ("Cannot allocate memory", "Ne peut allouer de la mémoire"),
        ("Read-only file system", "Système de fichiers accessible en lecture seulement"),
        ("file too short", "fichier trop court"),
        ("invalid ELF header", "en-tête ELF invalide"),
        ("command not found", "commande introuvable"),
        ("fatal error:", "erreur fatale:"),
        ("cannot find -l", "ne peut pas trouver -l"),
    ],
    &[
        ("No such file or directory", "没有那个文件或目录"),
        ("cannot open shared object file", "无法打开共享对象文件"),
        ("Permission denied", "权限不够"),
        ("No space left on device", "设备上没有空间"),
        ("Cannot allocate memory", "无法分配内存"),
        ("Read-only file system", "只读文件系统"),
        ("file too short", "文件过短"),
        ("invalid ELF header", "无效的 ELF 头"),
        ("command not found", "未找到命令"),
        ("fatal error: ", "致命错误："),
        ("cannot find -l", "找不到 -l"),
    ],
    &[
        ("No such file or directory", "Нет такого файла или каталога"),
        ("cannot open shared object file", "невозможно открыть разделяемый объектный файл"),
        ("Permission denied", "Отказано в доступе"),
        ("No space left on device", "На устройстве не осталось свободного места"),
        ("Cannot allocate memory", "Невозможно выделить память"),
        ("Read-only file system", "Файловая система доступна только для чтения"),
        ("file too short", "файл слишком мал"),
        ("invalid ELF header", "неверный заголовок ELF"),
        ("command not found", "команда не найдена"),
        ("fatal error:", "фатальная ошибка:"),
        ("cannot find -l", "невозможно найти -l"),
    ],
    &[
        ("No such file or directory", "No existe el fichero o el directorio"),
        ("cannot open shared object file", "no se puede abrir el fichero del objeto compartido"),
        ("Permission denied", "Permiso denegado"),
        ("No space left on device", "No queda espacio en el dispositivo"),
        ("Cannot allocate memory", "No se pudo asignar memoria"),
        ("Read-only file system", "Sistema de ficheros de sólo lectura"),
        ("file too short", "fichero demasiado corto"),
        ("invalid ELF header", "cabecera ELF inválida"),
        ("command not found", "orden no encontrada"),
        ("fatal error:", "error fatal:"),
        ("cannot find -l", "no se puede encontrar -l"),
    ],
    &[
        ("No such file or directory", "そのようなファイルやディレクトリはありません"),
        ("cannot open shared object file", "共有オブジェクトファイルを開けません"),
        ("Permission denied", "許可がありません"),
        ("No space left on device", "デバイスに空き領域がありません"),
        ("Cannot allocate memory", "メモリを確保できません"),
        ("Read-only file system", "読み込み専用ファイルシステムです"),
        ("file too short", "ファイルが小さすぎます"),
        ("invalid ELF header", "無効な ELF ヘッダーです"),
        ("command not found", "コマンドが見つかりません"),
        ("fatal error:", "致命的エラー:"),
    ],
    &[
        ("No such file or directory", "그런 파일이나 디렉터리가 없습니다"),
        ("cannot open shared object file", "동적 오브젝트 파일을 열 수 없습니다"),
        ("Permission denied", "허가 거부"),
        ("No space left on device", "장치에 남은 공간이 없음"),
        ("Cannot allocate memory", "메모리를 할당할 수 없습니다"),
        ("Read-only file system", "읽기전용 파일 시스템"),
        ("file too short", "파일이 너무 짧습니다"),
        ("invalid ELF header", "ELF 헤더가 잘못됨"),
        ("command not found", "명령어를 찾을 수 없음"),
    ],
];

fn languages(text: &str, dice: &mut Dice) -> Vec<u8> {
    let words = LANGUAGES[dice.roll(LANGUAGES.len())];
    words.iter().fold(text.to_owned(), |text, (english, other)| text.replace(english, other)).into_bytes()
}

/// Compilers' quotes alone: Python's stay plain.
fn curly(text: &str, _: &mut Dice) -> Vec<u8> {
    let compilers = |line: &str| line.contains("error:") && !line.contains("Error");
    let line = |line: &str| if compilers(line) { each(line, "'([^']*)'", |_, inside| format!("‘{inside}’")) } else { line.to_owned() };
    lines(text, line)
}

fn lines(text: &str, mut by: impl FnMut(&str) -> String) -> Vec<u8> {
    text.lines().map(|line| by(line) + "\n").collect::<String>().into_bytes()
}

fn docker(text: &str, dice: &mut Dice) -> Vec<u8> {
    let (step, mut time) = (4 + dice.roll(20), dice.roll(90));
    lines(text, |line| {
        time += dice.roll(3);
        format!("#{step} {time}.{:03} {line}", dice.roll(1000))
    })
}

fn github(text: &str, dice: &mut Dice) -> Vec<u8> {
    lines(text, |line| {
        format!("2025-0{}-1{}T09:{:02}:11.{:07}Z {line}", 1 + dice.roll(9), dice.roll(9), dice.roll(60), dice.roll(10_000_000))
    })
}

fn ranks(text: &str, dice: &mut Dice) -> Vec<u8> {
    let ranks = 2 + dice.roll(7);
    lines(text, |line| format!("[rank{}]: {line}", dice.roll(ranks)))
}

fn colours(text: &str, _: &mut Dice) -> Vec<u8> {
    let red = |word: &str, _: &str| format!("\u{1b}[01;31m\u{1b}[K{word}\u{1b}[m\u{1b}[K");
    lines(text, |line| format!("\u{1b}[1m{}\u{1b}[0m", each(line, "fatal error:|error:|warning:|ERROR", red)))
}

fn crlf(text: &str, _: &mut Dice) -> Vec<u8> {
    text.replace('\n', "\r\n").into_bytes()
}

fn framed(text: &str, dice: &mut Dice) -> Vec<u8> {
    let bar = dice.pick(&["      ", "  │ ", "    × ", "  ╰─> "]);
    lines(text, |line| format!("{bar}{line}"))
}
