//! What runs in a process of the NCCL test, step by step, each step said before it begins.

use super::super::worker::panic_text;
use super::collectives::Rank;
use super::cuda::Cuda;
use super::library::{Nccl, UniqueId};
use super::protocol::{Event, NcclRequest, Part};
use super::values::{MOST_RANKS, Shape};
use crate::facts::nccl::{Failure, Op, Stage, Step};
use std::fs::File;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};

/// `out`: where the lines go.
pub fn run(request: &NcclRequest, out: File) {
    panic::set_hook(Box::new(|_| ()));
    let mut talk = Talk { out };
    let caught = panic::catch_unwind(AssertUnwindSafe(|| match &request.part {
        None => open(request, &mut talk),
        Some(part) => rank(request, part, &mut talk),
    }));
    let last = match caught {
        Ok(Ok(())) => Event::Done,
        Ok(Err(failure)) => Event::Failed(failure),
        Err(payload) => Event::Failed(own(format!("a panic: {}", panic_text(&*payload)))),
    };
    // Nobody listens: nothing is left to do.
    let _ = talk.say(&last);
}

fn own(why: String) -> Failure {
    Failure { call: "the test itself".to_owned(), code: None, why, last_error: String::new() }
}

struct Talk {
    out: File,
}

impl Talk {
    fn say(&mut self, event: &Event) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(event).map_err(|e| own(e.to_string()))?;
        line.push(b'\n');
        self.out.write_all(&line).map_err(|e| own(format!("stdout: {e}")))
    }

    fn at(&mut self, step: Step) -> Result<(), Failure> {
        self.say(&Event::At(step))
    }
}

fn library(request: &NcclRequest, talk: &mut Talk) -> Result<Nccl, Failure> {
    talk.at(Step::Open)?;
    Nccl::open(&request.library)
}

/// Without a GPU: the library, its version, a unique id; and where there is a driver, its GPUs.
fn open(request: &NcclRequest, talk: &mut Talk) -> Result<(), Failure> {
    let nccl = library(request, talk)?;
    talk.at(Step::Version)?;
    let code = nccl.version()?;
    talk.say(&Event::Version { code })?;
    talk.at(Step::UniqueId)?;
    let id = nccl.unique_id()?;
    talk.say(&Event::UniqueId { id: hex(&id) })?;
    if let Some(driver) = &request.driver {
        talk.at(Step::Driver)?;
        let devices = Cuda::open(driver)?.devices()?;
        talk.say(&Event::Devices { devices })?;
    }
    Ok(())
}

fn rank(request: &NcclRequest, part: &Part, talk: &mut Talk) -> Result<(), Failure> {
    let Some(driver) = &request.driver else { return Err(own("no driver was named".to_owned())) };
    if part.ranks == 0 || part.ranks > MOST_RANKS || part.rank >= part.ranks {
        return Err(own(format!("rank {} of {}", part.rank, part.ranks)));
    }
    let nccl = library(request, talk)?;
    let id = match &part.id {
        Some(id) => unhex(id).ok_or_else(|| own("the unique id cannot be read".to_owned()))?,
        None => {
            talk.at(Step::UniqueId)?;
            let id = nccl.unique_id()?;
            talk.say(&Event::UniqueId { id: hex(&id) })?;
            id
        }
    };
    talk.at(Step::Driver)?;
    let cuda = Cuda::open(driver)?;
    talk.at(Step::Context)?;
    let gpu = cuda.gpu(part.device)?;
    talk.at(Step::Memory)?;
    let memory = Rank::memory(&gpu, part.sizes.iter().copied().max().unwrap_or(0), part.ranks)?;
    talk.at(Step::Init)?;
    let rank = Rank::new(nccl.init(id, part.rank, part.ranks)?, gpu, memory);
    for op in Op::ALL {
        for bytes in &part.sizes {
            let shape = Shape::new(op, part.ranks.into(), *bytes);
            let mut at = |stage: Stage| talk.at(Step::Collective { op, bytes: *bytes, stage });
            let (seconds, wrong) = rank.measure(&shape, &mut at)?;
            talk.say(&Event::Measured { op, bytes: shape.total * 4, seconds, wrong })?;
        }
    }
    talk.at(Step::Close)?;
    rank.close()
}

fn hex(id: &UniqueId) -> String {
    id.internal.iter().map(|byte| format!("{:02x}", *byte as u8)).collect()
}

fn unhex(text: &str) -> Option<UniqueId> {
    let mut id = UniqueId { internal: [0; 128] };
    if text.len() != 2 * id.internal.len() {
        return None;
    }
    for (index, byte) in id.internal.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()? as _;
    }
    Some(id)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ids_pass_through_text() {
        let mut id = UniqueId { internal: [0; 128] };
        for (index, byte) in id.internal.iter_mut().enumerate() {
            *byte = (index * 7) as u8 as _;
        }
        assert_eq!(unhex(&hex(&id)).unwrap().internal, id.internal);
        for bad in ["", "0", &"zz".repeat(128), &"é".repeat(128)] {
            assert!(unhex(bad).is_none(), "{bad}");
        }
    }
}
