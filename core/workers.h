#pragma once
// The threads that share the loops of a process (see core/parallel_for.h).
//
//   caller   ─┬─ part 3 ─── part 0 ──┬─▶          a loop is cut into parts; whoever is free takes the
//   worker 1  ├──── part 2 ──────────┤            next one, until none is left
//   worker 2  └──────── part 1 ──────┘
//
// The caller waits for parts that were begun, never for a thread that has not come: on a machine that
// is busy with other things it does the work itself. (OpenMP's barriers wait for every thread of a
// team, for milliseconds at full speed: with a second program on the same cores, training took three
// to five times as long.) There is one loop at a time: ranks that are threads run theirs alone while
// another rank has the workers.

namespace gradus {

/// Whether this thread is working on a part of a loop: loops inside it are run by this thread alone.
bool in_loop();

/// Calls part(body, i) once for each i < parts, and returns when all have returned. The first
/// exception is rethrown here.
void run_parts(int parts, void (*part)(void* body, int i), void* body);

}  // namespace gradus
