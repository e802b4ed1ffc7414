// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest stretches of the whole program: functions call each other, and a stretch may begin in one and end in another.
//! An indirect branch on the way is a problem, since a guest can train the core's prediction of it.

mod cut;
mod exits;

use crate::annotations::Annotations;
use crate::code::{Callee, Code, End};
use crate::foreign::Foreign;
use crate::graph::{LoopId, Nest, NodeId};
use crate::longest::{Begun, Lengths, Search, StepId, Walk, Walks};
use crate::loops::{Bounds, is_own};
use crate::problem::Problem;
use crate::program::{FunctionId, Program};
use crate::returns;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What a step of a stretch goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A node of a function.
    Node(FunctionId, NodeId),
    /// A whole walk: that of a called function, or what comes after the return of one.
    Walk(StepId),
    /// A round of a loop that is counted apart would begin; no instructions.
    Round(FunctionId),
}

/// A point at which stretches begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// After a node: a look, a sleep, or the exit of a guest.
    After(FunctionId, NodeId),
    /// A round of a loop that is counted apart; there are so many in one stretch at most.
    Round(FunctionId, NodeId, u64),
}

/// What a call of a function may be for the caller.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    /// The longest way to the return without a look.
    through: Option<Walk>,
    /// The longest way to a first look, or to another end.
    head: Option<Walk>,
}

/// What is known of one function.
struct Known {
    code: Rc<Code>,
    nest: Rc<Nest>,
    bounds: Bounds,
}

/// The analysis of a program.
pub struct Analysis<'p> {
    program: &'p Program,
    foreign: &'p Foreign,
    functions: Vec<Option<Known>>,
    /// Nodes with a call of each function.
    callers: BTreeMap<FunctionId, Vec<(FunctionId, NodeId)>>,
    searches: BTreeMap<Callee, Search>,
    summaries: BTreeMap<Callee, Summary>,
    /// Functions that are being summarized now. A call of one of them is a recursion.
    open: BTreeSet<Callee>,
    rests: BTreeMap<FunctionId, Option<Walk>>,
    /// All steps.
    pub walks: Walks<Place>,
    /// The loops whose bounds the result depends on.
    pub asked: BTreeSet<(FunctionId, LoopId)>,
    /// What has to be cured before the result counts.
    pub problems: BTreeSet<Problem>,
}

impl<'p> Analysis<'p> {
    /// Reads the flow of control of all functions.
    pub fn new(program: &'p Program, annotations: &Annotations, foreign: &'p Foreign) -> Self {
        let mut analysis = Self {
            program,
            foreign,
            functions: Vec::new(),
            callers: BTreeMap::new(),
            searches: BTreeMap::new(),
            summaries: BTreeMap::new(),
            open: BTreeSet::new(),
            rests: BTreeMap::new(),
            walks: Walks::new(),
            asked: BTreeSet::new(),
            problems: returns::check(program).into_iter().collect(),
        };
        let outside = analysis.outside();
        let mut codes = Vec::new();
        for id in 0..program.functions.len() {
            let code = (!outside.contains(&id)).then(|| Code::of(program, id));
            codes.push(match code.transpose() {
                Ok(code) => code,
                Err(problem) => {
                    analysis.problems.insert(problem);
                    None
                }
            });
        }
        for code in codes.iter_mut().flatten() {
            analysis.end_at_inlined(code);
        }
        analysis.cut(&mut codes);
        for (id, code) in codes.into_iter().enumerate() {
            let known = code.map(|code| {
                let nest = Nest::of(&code.graph);
                let bounds = Bounds::of(program, id, &code, &nest, annotations, foreign);
                Known {
                    code: Rc::new(code),
                    nest: Rc::new(nest),
                    bounds,
                }
            });
            analysis.functions.push(known);
        }
        analysis.note_callers();
        analysis
    }

    /// Functions that are not part of any stretch.
    fn outside(&mut self) -> BTreeSet<FunctionId> {
        let mut outside = BTreeSet::new();
        for entry in self.foreign.outside.iter().filter(|it| !it.inlined) {
            let named: Vec<_> = self.program.named(&entry.name).collect();
            if named.is_empty() {
                self.problems.insert(Problem::new(
                    "foreign.toml",
                    format!("the program has no function {}", entry.name),
                    "remove the entry, or correct its name",
                ));
            }
            outside.extend(named);
        }
        outside
    }

    /// A function as it is summarized: a copy of a known number of bytes is one of its own.
    fn called(&self, (callee, length): Callee) -> Callee {
        let entry = self.foreign.loops_of(&self.program.functions[callee].name);
        let by_length = entry.is_some_and(|it| !it.bytes_a_round.is_empty());
        (callee, length.filter(|_| by_length))
    }

    fn note_callers(&mut self) {
        let mut callers = BTreeMap::<_, Vec<_>>::new();
        for (id, known) in self.functions.iter().enumerate() {
            let Some(known) = known else { continue };
            for item in reached(&known.nest) {
                if let End::Call((callee, _)) | End::TailCall((callee, _)) =
                    known.code.nodes[item].end
                {
                    callers.entry(callee).or_default().push((id, item));
                }
            }
        }
        self.callers = callers;
    }

    /// The flow of control of a function that is part of a stretch.
    pub fn code(&self, id: FunctionId) -> Option<&Rc<Code>> {
        self.functions.get(id)?.as_ref().map(|it| &it.code)
    }

    /// A loop that the result depends on, for a human to judge: its bound, where that is from, and where the loop is.
    pub fn describe(&self, (id, number): (FunctionId, LoopId)) -> Option<String> {
        let known = self.functions.get(id)?.as_ref()?;
        let this = known.nest.loops.get(number)?;
        let name = &self.program.functions[id].name;
        let frames = self
            .program
            .frames(known.code.nodes[this.header].range.start);
        let own: Vec<_> = frames
            .iter()
            .filter(|it| is_own(it))
            .map(|it| format!("{}:{}", it.file, it.line))
            .collect();
        Some(format!(
            "{}  {name}  {}",
            known.bounds.get(number),
            own.join(" < ")
        ))
    }

    /// All points at which stretches begin: looks, sleeps, and vectors of guests.
    pub fn starts(&self) -> Vec<Start> {
        let mut starts = Vec::new();
        for (id, known) in self.functions.iter().enumerate() {
            let Some(known) = known else { continue };
            let nodes = reached(&known.nest).into_iter();
            starts.extend(
                nodes
                    .filter(|&it| {
                        matches!(
                            known.code.nodes[it].end,
                            End::Look | End::Sleep | End::Vector(_)
                        )
                    })
                    .map(|it| Start::After(id, it)),
            );
            let loops = known.nest.loops.iter().enumerate();
            starts.extend(loops.filter_map(|(number, it)| {
                let times = known.bounds.apart(number)?;
                Some(Start::Round(id, it.header, times))
            }));
        }
        starts
    }

    /// The longest stretch that begins at a start.
    pub fn stretch(&mut self, start: Start) -> Option<Walk> {
        let (id, node) = match start {
            Start::After(id, node) => (id, node),
            Start::Round(id, header, _) => return self.rest_of(id, Some(header), &[], false),
        };
        let code = self.code(id)?.clone();
        if let End::Vector(vector) = code.nodes[node].end {
            let way = self.through((vector, None))?;
            let begin = self.append(Walk::START, way);
            return self.after_exit(id, vector, begin);
        }
        self.rest_after(id, begun(node, Walk::START))
    }

    /// The longest way from after a node, which a walk has just passed, to a look or another end.
    fn rest_after(&mut self, id: FunctionId, begin: Begun) -> Option<Walk> {
        let code = self.code(id)?.clone();
        // The function that was jumped to returns to the caller of this one.
        let returns = matches!(code.nodes[begin.after].end, End::TailCall(_));
        self.rest_of(id, None, &[begin], returns)
    }

    /// The longest way to a look or another end, from a node that is entered, and from after others.
    fn rest_of(
        &mut self,
        id: FunctionId,
        entered: Option<NodeId>,
        begun: &[Begun],
        returns: bool,
    ) -> Option<Walk> {
        let code = self.code(id)?.clone();
        let (arrived, ended) = self.search((id, None), entered.map(|it| (it, Walk::START)), begun);
        let (mut through, mut head) = (None, ended);
        self.ends(id, &code, &arrived, &mut through, &mut head);
        if returns {
            through = begun
                .iter()
                .fold(through, |walk, it| Walk::longer(walk, Some(it.walk)));
        }
        if let Some(walk) = through
            && let Some(rest) = self.after_return(id)
        {
            let whole = self.append(walk, rest);
            head = Walk::longer(head, Some(whole));
        }
        head
    }

    /// The longest way from the return of a function to a look or another end, in any caller.
    fn after_return(&mut self, id: FunctionId) -> Option<Walk> {
        if let Some(known) = self.rests.get(&id) {
            return *known;
        }
        // Recursion is reported where the summary is made.
        self.rests.insert(id, None);
        let mut longest = None;
        for (caller, node) in self.callers.get(&id).cloned().unwrap_or_default() {
            let rest = self.rest_after(caller, begun(node, Walk::START));
            longest = Walk::longer(longest, rest);
        }
        self.rests.insert(id, longest);
        longest
    }

    fn append(&mut self, walk: Walk, rest: Walk) -> Walk {
        match rest.last {
            Some(last) => self.walks.step(walk, rest.length, Place::Walk(last)),
            None => walk,
        }
    }

    /// The longest of all walks that have arrived: at a return, and at a look.
    fn ends(
        &mut self,
        id: FunctionId,
        code: &Code,
        arrived: &[Option<Walk>],
        through: &mut Option<Walk>,
        head: &mut Option<Walk>,
    ) {
        for (number, walk) in arrived.iter().enumerate() {
            let Some(walk) = *walk else { continue };
            let node = &code.nodes[number];
            if matches!(node.end, End::Flow | End::Vector(_) | End::IndirectCall) {
                continue;
            }
            let after = self
                .walks
                .step(walk, node.length(), Place::Node(id, number));
            match &node.end {
                End::Return | End::IndirectJump => *through = Walk::longer(*through, Some(after)),
                End::Look | End::Sleep | End::EnterGuest => {
                    *head = Walk::longer(*head, Some(after))
                }
                End::Call(callee) | End::TailCall(callee) => {
                    let jumps = matches!(node.end, End::TailCall(_));
                    let summary = self.summary(self.called(*callee));
                    if let Some(inside) = summary.head {
                        let walk = self.append(after, inside);
                        *head = Walk::longer(*head, Some(walk));
                    }
                    if let Some(inside) = summary.through.filter(|_| jumps) {
                        let walk = self.append(after, inside);
                        *through = Walk::longer(*through, Some(walk));
                    }
                }
                End::Flow | End::Vector(_) | End::IndirectCall => {}
            }
        }
    }

    fn through(&mut self, call: Callee) -> Option<Walk> {
        self.summary(call).through
    }

    fn summary(&mut self, call: Callee) -> Summary {
        if let Some(known) = self.summaries.get(&call) {
            return *known;
        }
        let Some(code) = self.code(call.0).cloned() else {
            return Summary::default();
        };
        // A function that is asked for while its own summary is made calls itself.
        if !self.open.insert(call) {
            self.problems.insert(Problem::new(
                &self.program.functions[call.0].name,
                "it calls itself, perhaps through other functions",
                "write a loop with a bound, or name it in foreign.toml under [[outside]]",
            ));
            return Summary::default();
        }
        let (arrived, ended) = self.search(call, Some((0, Walk::START)), &[]);
        let (mut through, mut head) = (None, ended);
        self.ends(call.0, &code, &arrived, &mut through, &mut head);
        let summary = Summary { through, head };
        self.open.remove(&call);
        self.summaries.insert(call, summary);
        summary
    }

    fn search(
        &mut self,
        call: Callee,
        entered: Option<(NodeId, Walk)>,
        begun: &[Begun],
    ) -> (Vec<Option<Walk>>, Option<Walk>) {
        let Some(known) = self.functions.get(call.0).and_then(Option::as_ref) else {
            return (Vec::new(), None);
        };
        let mut search = match self.searches.remove(&call) {
            Some(search) => search,
            None => Search::new(Rc::new(known.code.graph.clone()), known.nest.clone()),
        };
        let code = known.code.clone();
        let mut inside = Inside {
            analysis: self,
            call,
            code,
        };
        let (arrived, ended) = search.longest(entered, begun, &mut inside);
        self.searches.insert(call, search);
        let ended = ended.map(|it| self.walks.step(it, 0, Place::Round(call.0)));
        (arrived, ended)
    }
}

fn begun(after: NodeId, walk: Walk) -> Begun {
    Begun {
        after,
        to: None,
        walk,
    }
}

/// The nodes of a function of a program.
struct Inside<'a, 'p> {
    analysis: &'a mut Analysis<'p>,
    call: Callee,
    code: Rc<Code>,
}

impl Lengths for Inside<'_, '_> {
    fn through(&mut self, walk: Walk, node: NodeId) -> Option<Walk> {
        let code = self.code.clone();
        let this = &code.nodes[node];
        let place = Place::Node(self.call.0, node);
        match &this.end {
            End::Flow => Some(self.analysis.walks.step(walk, this.length(), place)),
            End::IndirectCall | End::IndirectJump => {
                let problem = self.analysis.indirect(self.call.0, this.last());
                self.analysis.problems.insert(problem);
                Some(self.analysis.walks.step(walk, this.length(), place))
            }
            End::Call(callee) => {
                let walk = self.analysis.walks.step(walk, this.length(), place);
                let inside = self.analysis.through(self.analysis.called(*callee))?;
                Some(self.analysis.append(walk, inside))
            }
            _ => None,
        }
    }

    fn repetitions(&mut self, of: LoopId) -> u64 {
        self.analysis.asked.insert((self.call.0, of));
        let Some(known) = &self.analysis.functions[self.call.0] else {
            return 1;
        };
        match known.bounds.repetitions(of, self.call.1) {
            Ok(times) => times,
            Err(problem) => {
                self.analysis.problems.insert(problem);
                1
            }
        }
    }

    fn is_apart(&self, of: LoopId) -> bool {
        let known = self
            .analysis
            .functions
            .get(self.call.0)
            .and_then(Option::as_ref);
        known.is_some_and(|it| it.bounds.apart(of).is_some())
    }

    fn payer(&self, of: LoopId) -> Option<LoopId> {
        let known = self
            .analysis
            .functions
            .get(self.call.0)
            .and_then(Option::as_ref);
        known?.bounds.payer(of)
    }

    fn repeat(&mut self, walk: Walk, times: u64, body: Walk) -> Walk {
        self.analysis.walks.repeat(walk, times, body)
    }
}

impl Analysis<'_> {
    /// What is wrong with a `br` or `blr`.
    fn indirect(&self, id: FunctionId, at: u64) -> Problem {
        Problem::new(
            self.program.place(id, at),
            "it branches to an address in a register, and a guest can train the core's prediction of indirect branches at EL2 \
             (CVE-2017-5715, CVE-2022-23960)",
            "write a `match` instead of a trait object or a function pointer, and compile with -Cjump-tables=no, as scripts/build does",
        )
    }
}

fn reached(nest: &Nest) -> BTreeSet<NodeId> {
    use crate::graph::Item;
    let mut nodes: BTreeSet<_> = nest
        .loops
        .iter()
        .flat_map(|it| it.nodes.iter().copied())
        .collect();
    nodes.extend(nest.whole.iter().filter_map(|it| match it {
        Item::Node(node) => Some(*node),
        Item::Loop(_) => None,
    }));
    nodes
}

#[cfg(test)]
mod tests;
