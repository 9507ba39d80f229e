#pragma once
// The table of contents. n is the number of completed updates; every rate is a closed form of n.
//
//   constant(η)                              η
//   linear(from, to, N)                      from + (to − from) min(n, N)/N
//   cosine(from, to, N)                      to + (from − to) ½ (1 + cos π min(n, N)/N)
//   cosine_annealing(max, min, T)            the same, periodic
//   cosine_restarts(max, min, T₀, k)         cycles of T₀, T₀k, T₀k², … steps
//   inverse_sqrt(peak, w, floor)             max(floor, peak √(w/(w + n)))
//   wsd(peak, floor, S, Z, tail)             peak for S steps, then a tail of Z steps
//   step(η₀, s, γ)                           η₀ γ^⌊n/s⌋
//   multi_step(η₀, milestones, γ)            η₀ γ^#{milestones ≤ n}
//   exponential(η₀, γ)                       η₀ γⁿ
//   warmup(peak, w, then, from)              a line up to the peak, then another schedule
//   sequence(schedules, milestones)          one after the other
//
// ParamScheduler (sched/param_scheduler.h) is what the training program uses: learning rate and
// weight decay of all groups, in samples, saved and loaded with the checkpoint.
#include "sched/cosine.h"
#include "sched/inverse_sqrt.h"
#include "sched/linear.h"
#include "sched/param_scheduler.h"
#include "sched/schedule.h"
#include "sched/sequence.h"
#include "sched/step.h"
#include "sched/warmup.h"
#include "sched/wsd.h"
