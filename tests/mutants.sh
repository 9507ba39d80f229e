#!/bin/bash
# Plants known bugs in the ops and the engine, one at a time, and expects a named check to fail. A check
# that no bug can fail proves nothing.
#
#   tests/mutants.sh BUILD_FOLDER [WORD]     with a word: those alone whose file, bug or check has it
#
# Each bug is a sed expression on one source file. That file is compiled again (with -O1, that is
# quicker) and linked with the objects of the build folder.
build=$1 word=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
IFS='|' read -r compile_cpp compile_cu < "$build/flags.txt"
IFS='|' read -r library libraries training < "$build/objects.txt"
libraries+=" $training"
tests=$(< "$build/tests.txt")

# failing LOG STATUS: the first case that failed, or how the program ended.
failing() {
  sed -nE 's/^\[  FAILED  \] ([^ ,(]+).*/\1/p;T;q' "$1" | grep . || echo "exit status $2"
}

# plant FILE SED_EXPRESSION FILTER...: says for each FILTER whether it has a case that fails.
plant() {
  local file=$1 bug="$1: $2" object=$build/$1.o compile=$compile_cpp others filter status dir=$work/$BASHPID
  mkdir -p "$dir/$(dirname "$file")"
  sed -E "$2" "$file" > "$dir/$file"
  if cmp -s "$file" "$dir/$file"; then
    echo "MISSED   $bug changes nothing"
    return
  fi
  [[ $file != *.cu ]] || compile=$compile_cu
  others=$(tr ' ' '\n' <<< "$library $tests" | grep -vxF "$object")
  if ! ${compile//-O[0-9]/-O1} -I. -c "$dir/$file" -o "$dir/mutant.o" 2> "$dir/log" ||
    ! ${compile_cpp%% -O*} -Wl,-S $others "$dir/mutant.o" -lgtest_main -lgtest $libraries -o "$dir/run_tests" 2> "$dir/log"; then
    echo "BROKEN   $bug does not build: $(tail -n 1 "$dir/log")"
    return
  fi
  for filter in "${@:3}"; do
    { timeout 120 "$dir/run_tests" --gtest_brief=1 --gtest_fail_fast --gtest_filter="$filter"; } &> "$dir/log"
    status=$?
    if ((status == 0)); then
      echo "SURVIVED $bug, checked by $filter"
    else
      echo "caught   $bug, by $(failing "$dir/log" $status)"
    fi
  done
  rm -r "$dir"
}

# mutant FILE SED_EXPRESSION FILTER...: each FILTER must have a case that fails. As many at a time as there are cores.
mutant() {
  [[ $* == *"$word"* ]] || return
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n; done
  plant "$@" | tee -a "$work/results" &
}

case='AllOps/OpGradient.MatchesReference' m='ParityMatrix.*/'
# ops: the wrong factor, sign, operand, order, reduction
mutant ops/binary.cu  's/Tensor da = div\(dy, \*b\);/Tensor da = mul(dy, *b);/'              "$case/div_*f64*"
mutant ops/binary.cu  's/: neg\(sum_to\(dy, b\)\)|neg\(sum_to\(dy, b\)\)/sum_to(dy, b)/'     "$case/sub_*f64*"
mutant ops/shape.cpp  's/back\[size_t\(dims\[d\]\)\] = int\(d\)/back[d] = dims[d]/'          "$case/permute_*f64*"
mutant ops/shape.cpp  's/parts\[i\] = zeros\(s, dtype, device\)/parts[i] = empty(s, dtype, device)/' 'Engine.G13*'
mutant ops/gemm_tensor.cpp 's/t\(dY\), X, into->beta\(\)\)/t(dY), X, (into->beta(), 1))/' 'Engine.MainGrad*'
mutant ops/gemm_tensor.cpp 's/if \(!into\) return sum\(dY, \{0\}\)/if (!into) return mul(sum(dY, {0}), 0.5)/' "$case/linear_*f64*"
mutant ops/softmax.cu 's/total \+= D::term\(A\(y\[i\]\), A\(dy\[i\]\)\);//'                   "$case/softmax_*f64*"
mutant ops/softmax.cu 's/live \+= D::is_live\(A\(y\[i\]\)\);//'                              "$case/log_softmax_*f64*"
mutant ops/add_norm.cu 's/return \{dx, dy, sums\[2\]/return {dx, dx, sums[2]/'              "$case/add_layer_norm_*f64*"
mutant ops/cross_entropy.cu 's/logits && logits.is_sole_owner\(\)/bool(logits)/'           'CrossEntropy.LogitsThat*'
mutant ops/cross_entropy.cu 's/keeps_graph\(\) \? at_once : std::move/keeps_graph() ? std::move(at_once) : std::move/' 'CrossEntropy.BackwardAgain*'
mutant ops/sum_parts.cu 's/to.join_before_use\(.*//'                                        'SumParts.WhoReads*'
mutant ops/sum_parts.cu 's/mine->run\(\);//'                                               'SumParts.AllIsThere*'
# the engine: counting, ownership, release, hooks, order of destruction
mutant autograd/engine.cpp 's/if \(i < dx.size\(\) && dx\[i\]\) \{/if (i >= dx.size() || !dx[i]) continue;\n      {/' 'Engine.AnOpMayReturn*'
mutant autograd/engine.cpp 's/node->gradient_slots.clear\(\);$//'                            'Engine.AFailedBackward*'
mutant autograd/engine.cpp 's/g = std::move\(changed\)/changed = Tensor()/'                  'Engine.TensorHook*'
mutant autograd/engine.cpp 's/node.release_saved\(\);/(void)node;/'                          'Engine.G15*:Engine.G17*'
mutant autograd/engine.cpp 's/return node.leaf\(\) && \(found \|\| !accumulate_\)/return false/' 'Engine.GradReturns*'
mutant autograd/node.cpp   's/ours \? dy\[0\] : clone_values\(dy\[0\]\)/dy[0]/'              'Engine.G2_*'
mutant autograd/node.cpp   's/^    accumulate\(\*meta.grad, /    *meta.grad = Tensor(), accumulate(*meta.grad, /' 'Engine.N7*'
mutant autograd/node.cpp   's/^  if \(draining\) return;//'                                  'Engine.G11*'
mutant autograd/accumulate.cu 's/into.is_sole_owner\(\) && //'                               'Engine.AHeld*:Engine.G2_*'
mutant autograd/tensor.cpp 's/^  \+\+impl_->storage->version;//'                             'Engine.G8*:Engine.G9*'
mutant autograd/engine.cpp 's/if \(running\(\).size\(\) == 1\) end\(\);/end();/'            'Engine.WhatWaits*Once*'
mutant autograd/engine.cpp 's/if \(running\(\).size\(\) == 1\) end_of_failed\(\);//'        'Engine.WhatWaits*Fails'
# parameters, optimizers, models
mutant nn/init.cu        's/count = std::min\(\{kPiece, end - i, map.run - i % map.run\}\)/count = std::min(kPiece, end - i)/' 'Init.R10*' "${m}gpt2_tied_dp1_tp2_m1"
mutant optim/sgd.cu      's/n.updates == 1 \? W\(1\) : rest/rest/'                            'Sgd.Three*'
mutant optim/flat_buffer.cpp 's/slot.offset \+ layout_.own_part\(slot\).begin/slot.offset/'   'Slices.StateOf*'
mutant optim/split_master.cu 's/return low_of\(theta, bf16\(theta\)\);/return 0;/'                'SplitMaster.*'
mutant optim/step_control.cu 's/\(n.attempts \+ 1\) % kAhead/n.attempts % kAhead/'            'Step.*'
mutant optim/step_control.cu 's/return !std::isfinite/return std::isfinite/'                 'Step.TheFirstOfMany*'
mutant ops/self_attention.cpp 's/parts\[1\]\), heads_first\(parts\[2\]/parts[2]), heads_first(parts[1]/' 'Gpt.Rows*'
mutant ops/self_attention.cpp 's/bias_gradient\(rows_of\(flatten\(dy\)\), need\[1\]\)/Tensor{}/' 'SelfAttention.TheGradient*' "$case/added_bias_*f64*"
mutant models/shares.cpp 's/^  options.bias = qkv.bias;//'                                     'Gpt.GradientOfEvery*' 'Bert.GradientIs*'
mutant models/attention.cpp 's/cache \? cache->length\(\) : 0/0/'                              'Gpt.S16*'
mutant models/transformer.cpp 's/\.mask = s\.mask,//'                                      'Transformer.AStream*'
mutant models/gpt.cpp    's/run\(i \+ 1, /run(1, /'                                            'Gpt.R5_Blocks*'
# groups of ranks: calls that differ, inputs that are written to, parts and groups in the wrong order
mutant parallel/call.cpp 's/ && root == other.root//'                                         'Communicator.ADisagreement*'
mutant parallel/communicator.cpp 's/clone\(values\(x, "all_reduce"\)\)/values(x, "all_reduce")/' 'Communicator.AllReduceAdds*'
mutant parallel/communicator.cpp 's/dim == 0 \? all : side_by_side/dim >= 0 ? reshape(all, with_size(x.shape(), dim, size() * x.size(dim))) : side_by_side/' 'Communicator.AllGather*'
mutant parallel/thread_group.cpp 's/meeting_->inputs\(k \* bytes\)/meeting_->inputs(0)/'       'Communicator.ReduceScatter*'
mutant parallel/thread_mail.cpp 's/message->buffered \? clone\(x\) : x/x/'                    'ThreadGroup.ABuffered*'
mutant parallel/thread_world.cpp 's/check\(first_failed_ < 0, /check(true, /'                 'ThreadGroup.ARankThatThrows*'
mutant parallel/grid.cpp 's/^  for \(size_t i = 0; i < axes_.size\(\); \+\+i\)$/  for (size_t i = axes_.size(); i-- > 0;)/' 'GridShape.*'
mutant parallel/grid.cpp 's/if \(inside\[i\]\) others/if (!inside[i]) others/'              'GridShape.*'
mutant parallel/process_grid.cpp 's/v.shape.in_order\(along\)/along/'                         'ProcessGrid.*'
# many ranks: sums that are missing, too early or over others, norms over the wrong ranks, stale parameters
mutant parallel/finalize.cpp 's/^  sum_partial_gradients\(\);//'                             'Finalize.A1*' "${m}gpt2_tied_dp1_tp2_sp_m1"
mutant parallel/finalize.cpp 's/slices > 1 \? groups_.tp_dp : groups_.tp/slices > 1 ? groups_.tp : groups_.tp/' 'Finalize.A1*' "${m}gpt2_tied_dp2_tp1_zero_m1"
mutant parallel/finalize.cpp 's/slices > 1 \? groups_.tp_dp : groups_.tp/slices > 0 ? groups_.tp_dp : groups_.tp/' 'Finalize.A1*' "${m}gpt2_tied_dp2_tp1_m1"
mutant parallel/finalize.cpp 's/if \(counting_.size\(\) > 1\)/if (false)/'                  'Finalize.P8*' "${m}gpt2_tied_dp1_tp2_m1"
mutant parallel/data_parallel.cpp 's/\{ group_.all_gather_into\(all, own\); \}/{}/' 'Finalize.A1*' "${m}gpt2_tied_dp2_tp1_zero_m1"
mutant parallel/data_parallel.cpp 's/read_->size\(\) == flat_.order.size\(\)/false/'         'ParameterGather.Buckets*'
mutant core/storage.cpp 's/late\.join\(\);/;/'                                                'Finalize.WhoReads*' 'WriteAside.IsWaitedForByWho*'
mutant core/storage.cpp 's/late\.begin < end && begin < late\.end/true/'                      'WriteAside.IsWaitedForByNobody*'
mutant parallel/data_parallel.cpp 's/^  if \(!is_last_\) return;//'                        'DataParallel.TheLast*' "${m}gpt2_tied_dp2_tp1_m2"
mutant parallel/data_parallel.cpp 's/^  flat_.finish_gradients\(b.all\);//'                'DataParallel.What*'
mutant parallel/data_parallel.cpp 's/^  if \(has_arrived_\[s\]\) return;//'                 'DataParallel.Recomputed*'
mutant parallel/data_parallel.cpp 's/^  if \(ready <= held_\) return;//'                   'DataParallel.BucketsThat*'
mutant parallel/send_schedule.cpp 's/kMargin \* together/together/'                         'SendSchedule.BucketsWait*'
mutant parallel/send_schedule.cpp 's/quiet > kAwake \? int\(last\) : 0/int(last)/'           'SendSchedule.InAShort*'
mutant parallel/send_schedule.cpp 's/i < of_all_ranks.size\(\)/i < n/'                      'SendSchedule.AllRanks*'
mutant optim/arena_layout.cpp 's/ \|\| options_.tensor_rank == 0/ || true/'                 'Finalize.A1*' "${m}gpt2_tied_dp1_tp2_m1"
mutant optim/arena_layout.cpp 's/b.kind == Kind::cut \|\| //'                              'Finalize.A1*' "${m}gpt2_tied_dp1_tp2_m1"
mutant optim/arena_layout.cpp 's/counted.gaps = gaps\(counted.ranges\)/counted.gaps = 0/'   'Step.Zeros*'
mutant optim/arena_layout.cpp 's/Kind::cut \|\| options_.tensor_rank == 0\) append\(counted.ranges, b.own\)/Kind::cut || options_.tensor_rank == 0) append(counted.ranges, b.all)/' 'Finalize.A1*' "${m}gpt2_tied_dp2_tp1_zero_m1"
mutant optim/fused_update.cpp 's/passes.back\(\).segments.shift == b.shift/true/'                     'Slices.Update*' "${m}gpt2_tied_dp2_tp1_zero_m1"
# parallel: a mask that is keyed by the local index
mutant ops/dropout.cu    's/fill_words\(stream, elements\(uint64_t\(i\)\)/fill_words(stream, uint64_t(i)/' 'DropParts.OfABox*' "${m}gpt2_tied_dp2_tp1_m1"
mutant ops/add_norm.cu   's/\.first_element = options.first_element/.first_element = 0/'      'DropParts.OfRows*' "${m}gpt2_tied_dp2_tp1_m1"
mutant ops/attention.cu  's/\.head_rows = options.head_rows,//'                               'DropParts.OfHeads*' "${m}gpt2_tied_dp1_tp2_m1"
mutant models/transformer.cpp 's/first_element = random.elements\(branch\).first/first_element = 0/' 'Places.*Gpt*' "${m}gpt2_tied_dp2_tp1_m1"
mutant models/bert_block.cpp 's/random.head_rows\(heads_\)/{}/'                              'Places.*Bert*' "${m}bert_dp1_tp2_m1"
mutant train/step.cpp    's/random\(dropout, samples_.first\(part\)\)/random(dropout, first)/'      'Families/Parity.A1*gpt2'
mutant train/step.cpp    's/state_.dropout.restore\(masks\);//'                              'StepRunner.R5*'
# tensor and sequence parallelism
tensor='TensorParallel.*:TensorParallelGpt.*:TensorParallelBert.*'
mutant parallel/collectives.cpp 's/partial = consumer == Consumer::split/partial = consumer != Consumer::split/' 'Collectives.*' "${m}llama_untied_dp1_tp4_m1"
mutant parallel/collectives.cpp 's/return reduce_from\(group, dy\);/return dy;/'              'Collectives.*'
mutant parallel/collectives.cpp 's/first = n \* group\.rank\(\)/first = n * 0/'              'Collectives.*'
mutant parallel/tensor_parallel.cpp 's/\.partial_grad = splits_tokens\(\)/.partial_grad = false/' "$tensor" "${m}gpt2_tied_dp1_tp2_sp_m1"
mutant parallel/tensor_parallel.cpp 's/\(\{out\}, nn::init::zeros\(\), tp\.whole\(\)\)/({out}, nn::init::zeros())/' "$tensor" "${m}gpt2_tied_dp1_tp2_sp_m1"
mutant parallel/tensor_parallel_ops.cpp 's/return bias \? y \+ bias : y;/return bias ? y + bias * double(tp.ranks()) : y;/' "$tensor" "${m}bert_dp1_tp2_m1"
mutant parallel/tensor_parallel_ops.cpp 's/sum = begin_sum\(tp, gemm\(dY, W\)\)/sum = Started(gemm(dY, W))/' "$tensor" "${m}gpt2_tied_dp1_tp2_m1" 'ParityPrecision.*/llama_untied_dp1_tp2_m1_f32' 'ParityPrecision.*/llama_untied_dp1_tp2_m1_bf16'
mutant parallel/tensor_parallel_ops.cpp 's/apply\(RowLinearOp\{\.tp = tp\}, x/apply(RowLinearOp{}, x/' "$tensor" "${m}gpt2_tied_dp1_tp2_m1" 'ParityOfMasks.A5_Replicated*'
mutant ops/gemm_tensor.cpp 's/(gemm_into\(into->buffer, t\(dY\), X, into->beta\(\)\);)/\1 return into->buffer;/' 'TensorParallel.WeightGradients*'
mutant parallel/vocab_parallel.cpp 's/first = tp\.rank\(\) \* part\.size\(0\)/first = 0/' 'VocabParallel.*' "${m}gpt2_tied_dp1_tp2_m1"
mutant parallel/vocab_cross_entropy.cu 's/in\.n = vocabulary;/in.n = z.size(-1);/'            'VocabParallel.Oracle*' "${m}gpt2_tied_dp1_tp2_m1"
mutant parallel/vocab_cross_entropy.cu 's/std::clamp\(vocabulary - in\.first, int64_t\(0\), in\.width\)/in.width/' 'VocabParallel.*' "${m}gpt2_tied_dp1_tp2_m1"
mutant parallel/vocab_cross_entropy.cu 's/may_overwrite && !detail::keeps_graph\(\)/may_overwrite/' 'VocabParallel.LogitsThat*'
mutant models/mlp.cpp    's/\.pieces = pieces\(c\)/.pieces = 1/'                              'TensorParallelGpt.*' "${m}llama_tied_dp1_tp2_m1"
mutant models/shares.cpp 's/parallel::Consumer::split/parallel::Consumer::replicated/'        'TensorParallelGpt.*' "${m}llama_untied_dp1_tp4_m1"
mutant models/shares.cpp 's/first = tp\.rank\(\) \* own;/first = 0;/'                        'TensorParallelGpt.*' "${m}gpt2_tied_dp1_tp2_m1"
mutant models/shares.cpp 's/, first = tp\.rank\(\) \* rows;/;/'                              "$tensor" "${m}gpt2_tied_dp1_tp2_sp_m1" 'ParityOfMasks.A5_Are*'
mutant models/bert.cpp   's/on_cut_tokens->shard = tp\.whole\(\)/(void)on_cut_tokens/'        'TensorParallelBert.*' "${m}bert_dp1_tp2_sp_m1"
# steps of many ranks against those of one: what each rank leaves out, sums once more, or takes from another
mutant parallel/finalize.cpp 's/^  data_.finish\(\);/  sum_partial_gradients(), data_.finish();/; s/^  sum_partial_gradients\(\);//' "${m}gpt2_tied_dp2_tp2_sp_zero_m4"
mutant parallel/data_parallel.cpp 's/group_\.all_reduce_into\(all\);/;/'                      "${m}gpt2_tied_dp2_tp1_m1"
mutant parallel/data_parallel.cpp 's/group_\.all_reduce_into\(all\);/group_.all_reduce_into(all), group_.all_reduce_into(all);/' "${m}gpt2_tied_dp2_tp1_m1"
mutant parallel/data_parallel.cpp 's/group_\.reduce_scatter_into\(own, all\);/;/'             "${m}gpt2_tied_dp2_tp1_zero_m1"
mutant parallel/vocab_parallel.cpp 's/return reduce_from\(tp\.group, mine\)/return mine/'     "${m}gpt2_tied_dp1_tp2_m1"
mutant parallel/vocab_cross_entropy.cu 's/in\.first = rank \* in\.width/in.first = 0/'        "${m}gpt2_tied_dp1_tp2_m1"
mutant parallel/vocab_cross_entropy.cu 's/in\.ranks = ranks/in.ranks = 1/'                    "${m}gpt2_tied_dp1_tp2_m1"
mutant models/gpt.cpp    's/c\.deviation\), tp\.whole\(\)\)/c.deviation))/'                   "${m}gpt2_tied_dp1_tp2_sp_m1"
mutant models/gpt.cpp    's/drop\(stream\.x, r\.generator, r\.elements\(stream\.x\)\)/drop(stream.x, r.generator, {})/' "${m}gpt2_tied_dp2_tp1_m1"
mutant models/bert.cpp   's/r\.generator, r\.elements\(x\)\)/r.generator, {})/'               "${m}bert_dp2_tp1_m1"
mutant models/bert_block.cpp 's/norm2\.bias\.shard = tp\.whole\(\)/norm2.bias.shard = nn::Shard{}/' "${m}bert_dp1_tp2_sp_m1"
mutant models/transformer.cpp 's/nn::init::ones\(\), tp\.whole\(\)/nn::init::ones(), nn::Shard{}/' "${m}llama_tied_dp1_tp2_sp_m1"
mutant models/transformer.cpp 's/nn::init::zeros\(\), tp\.whole\(\)/nn::init::zeros(), nn::Shard{}/' "${m}gpt2_tied_dp1_tp2_sp_m1"
mutant models/attention.cpp 's/random\.head_rows\(heads_\)/{}/'                               "${m}gpt2_tied_dp1_tp2_m1"
mutant models/shares.cpp 's/query = first % of_group/query = 0/'                              "${m}llama_untied_dp1_tp4_m1"
# a run on many ranks: the contract of the loss, who computes, says, writes and reads what
parity='Families/Parity.A1*gpt2_tied:Families/Parity.A1*bert*'
mutant train/step.cpp    's/share = 1.0 \//share = 1.0 \/ double(samples_.micro_batches) \//'  "$parity"
mutant train/step.cpp    's/if \(samples_.data_ranks == 1\) return mine;/return mine;/'         "$parity"
mutant train/step.cpp    's/sum.pairs \+= all\[i \+ 1\]/sum.pairs = all[1]/'                     "$parity"
mutant train/step.cpp    's/if \(m \+ 1 == samples_.micro_batches\)/if (m == 0)/'              "$parity"
mutant train/step.cpp    's/loss_ = state_.ranks.dp.all_reduce\(total\)/loss_ = total/'        "$parity"
mutant train/samples.cpp 's/first_sample \+ samples.first\(m\)/first_sample + m * samples.rows/' "$parity"
mutant train/run_state.cpp 's/finalizer\(\*optimizer, ranks.groups\(\)\)/finalizer(*optimizer, {ranks.tp, {}, ranks.tp})/' "$parity"
mutant train/run_state.cpp 's/is_written\(s.parameter.name\(\), is_sliced\)/is_written(s.parameter.name(), false)/' 'ManyRanks.Checkpoints*'
mutant train/loss.cpp    's/^  share\(scores, dp\);//'                                         'ManyRanks.A6*'
mutant train/ranks.cpp   's/^  if \(!all.empty\(\)\) throw Error\(all\);//'                    'ManyRanks.C9*'
mutant train/trainer.cpp 's/WaitLimit limit\(.*\);/WaitLimit limit(0);/'                      'ManyRanks.H7_ARankThatHangs*'
mutant train/trainer.cpp 's/return any_of\(state.ranks.world, mine\(\)\)/return mine()/'       'ManyRanks.OneRank*'
mutant train/state.cpp   's/i \* shard.ranks \+ shard.rank\)/i * shard.ranks + shard.ranks - 1 - shard.rank)/' 'ManyRanks.A6*'
mutant train/state.cpp   's/i \* shard.ranks \+ shard.rank\)/shard.rank * shard.pieces + i)/'  'ManyRanks.A6*'
mutant train/state.cpp   's/shard.real\(length\)/length/'                                     'State.Slices*'
mutant train/writers.cpp 's/\(is_sliced \|\| writer.dp == dp_rank\)/writer.dp == dp_rank/'     'Writers.*'
# the comparison itself
mutant train/consistency.cpp 's/floor \* std::sqrt\(double\(s.columns\)\)/0/'                  'Consistency.Noise*'
mutant train/consistency.cpp 's/\(!bound_.judges_rows \|\| within\(t.row_rel, t.bound\)\)/true/' 'Consistency.ARow*'
mutant train/consistency.cpp 's/return value <= bound;/return !(value > bound);/'              'Consistency.NotANumber*'
mutant train/consistency.cpp 's/!sums_.empty\(\) && largest == 0/false/'                       'Consistency.Nothing*'
mutant train/checkpoint_diff.cpp 's/if \(!mine.contains\(name\)\)/if (false)/'                 'CheckpointDiff.Another*'

wait
caught=$(grep -c '^caught' "$work/results") survived=$(grep -vc '^caught' "$work/results")
echo "$caught mutants caught, $survived not"
((survived == 0 && caught > 0))
