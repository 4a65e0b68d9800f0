use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = ds_doctor::gpu::worker::entry() {
        return code;
    }
    ExitCode::SUCCESS
}
