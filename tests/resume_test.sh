#!/bin/bash
# The program as a person meets it: interrupted and resumed, given bad input, short of disk, writing.
. tests/shell/gradus.sh "$1"
same() { cmp "$1" "$2" || { echo "$1 and $2 differ"; bad=1; }; }
absent() { [ ! -e "$1" ] || { echo "$1 should not exist"; bad=1; }; }

for i in {1..400}; do echo "$i: the cat sat on the mat, and dog $((i * 7 % 13)) ran away"; done > text.txt
tiny=(--text text.txt --model gpt-tiny --layers 1 --width 16 --heads 2 --length 16 --batch 4
      --dropout 0.1 --device cpu --threads 1 --sample 8)
# What depends on the clock taken out of a metrics file.
numbers() { sed -E 's/,"(tokens_per_second|memory|mfu|mfu_full)":[^,}]*//g' "$1/metrics.jsonl"; }

# A whole run, and one that is interrupted by Ctrl-C wherever that falls and then resumed.
steps=(--steps 300 --eval-every 100 --save-every 100)
run train "${tiny[@]}" "${steps[@]}" --out whole
expect 0 "data .*held out" "MFU n/a" "6N \+ 12LTC" "sample" "^validation loss [0-9.]+, checkpoint whole/step_00000300$"
[ "$(tail -n 1 <<< "$out" | cut -c 1-15)" = "validation loss" ] || { echo "not the last line"; bad=1; }
"$gradus" train "${tiny[@]}" "${steps[@]}" --out parts > parts.txt 2>&1 &
pid=$!
for _ in {1..200}; do  # until it has taken a few steps, however slow the machine
  [ "$(cat parts/metrics.jsonl 2> /dev/null | wc -l)" -ge 5 ] && break
  sleep 0.02
done
kill -INT $pid
wait $pid
status=$? out=$(cat parts.txt)
expect 0 "stopped at step [0-9]+ of 300, checkpoint parts/step_.*gradus train --resume --out parts"
run train --resume --out parts --device cpu --threads 1 --sample 8
expect 0 "validation loss [0-9.]+, checkpoint parts/step_00000300"
same whole/step_00000300/rank_0.bin parts/step_00000300/rank_0.bin
numbers whole > a; numbers parts > b; same a b

# SIGKILL at some moment loses only what was not saved.
"$gradus" train "${tiny[@]}" "${steps[@]}" --save-every 1 --out killed &> /dev/null &
pid=$!
for _ in {1..200}; do ls killed/step_*5/index.json &> /dev/null && break; sleep 0.02; done
kill -KILL $pid
wait $pid 2> /dev/null
run train --resume --out killed --save-every 100 --device cpu --threads 1
expect 0 "validation loss [0-9.]+, checkpoint killed/step_00000300"
same whole/step_00000300/rank_0.bin killed/step_00000300/rank_0.bin

# Resuming with another shape names both values and touches nothing; so does a fresh start over a run.
run train --resume --out whole --width 32 --batch 8
expect 1 "--width 32, but the checkpoint has 16" "--batch 8, but the checkpoint has 4"
run train "${tiny[@]}" --out whole
expect 1 "whole holds a run already, saved up to step 300" "--resume"
run train --resume --out nowhere
expect 1 "nowhere .*does not exist"
run train --resume
expect 1 "--out"
head -c 15000 text.txt > short.txt
run train --resume --out whole --text short.txt
expect 1 "the data has changed"

# A damaged checkpoint is named; a cut index is passed over.
cp -r whole damaged
printf X | dd of=damaged/step_00000300/rank_0.bin bs=1 seek=5000 conv=notrunc status=none
run train --resume --out damaged --device cpu
expect 1 "step_00000300" "rank_0.bin"
run info damaged --verify
expect 1 "step_00000300" "rank_0.bin"
truncate -s 100 damaged/step_00000300/index.json
run train --resume --out damaged --device cpu --threads 1
expect 0 "incomplete checkpoints are passed over: step_00000300" "checkpoint damaged/step_00000300"

# Bad input: said before anything is made.
run train --text missing.txt --out never
expect 1 "missing.txt" "$dir"
: > empty.txt
run train --text empty.txt --out never
expect 1 "empty.txt"
echo "too short" > few.txt
run train --text few.txt --out never
expect 1 "few.txt has 10 tokens" "needs"
run train --out never
expect 1 "--text FILE"
run train --text text.txt --lyers 3 --out never
expect 2 "--lyers"
run train --text text.txt --layers three --out never
expect 2 "--layers"
run train --text text.txt --width 30 --heads 4 --out never
expect 1 "--width 30" "--heads 4"
run train --text text.txt --device cuda:77 --out never
expect 1 "cuda:77"
printf '\x05\x00\x06\x00\x07\x00%.0s' {1..300} > ids.bin
run train --data ids.bin --vocabulary 7 --model gpt-tiny --length 8 --out never
expect 1 "ids.bin: token 2 has id 7, but the model's vocabulary is 7"
run nonsense
expect 2 "nonsense"
absent never

# A token file, options from a file, and what the trained model says.
printf 'data = ids.bin\nvocabulary = 8\nmodel = gpt-tiny\nlayers = 1\nwidth = 16\nheads = 2\n' > run.ini
run train --config run.ini --length 8 --batch 4 --steps 150 --lr 0.02 --out ids --device cpu --sample 6
expect 0 "validation loss 0\.[0-9]+, checkpoint ids/step_00000150"
run generate --checkpoint ids --prompt "5 6 7 5" --tokens 5 --temperature 0 --device cpu
expect 0 "^5 6 7 5 6 7 5 6 7"
run generate --checkpoint ids --prompt "5 9"
expect 1 "'9' is no token id from 0 to 7"

# Pieces of words as tokens: learned once, kept with the run.
pieces=("${tiny[@]}" --tokenizer bpe --vocabulary 300)
run train "${pieces[@]}" --steps 40 --out pieces
expect 0 "in pieces of words" "vocabulary 300" "validation loss [0-9.]+, checkpoint pieces/step_00000040"
run train "${pieces[@]}" --steps 40 --stop-at 17 --out cut
run train --resume --out cut --device cpu --threads 1
expect 0 "checkpoint cut/step_00000040"
same pieces/step_00000040/rank_0.bin cut/step_00000040/rank_0.bin
run generate --checkpoint pieces --prompt "12: the cat" --tokens 9 --device cpu
expect 0 "^12: the cat"
echo damaged > cut/tokenizer.model
run generate --checkpoint cut
expect 1 "cut/tokenizer.model is no tokenizer"
rm cut/tokenizer.model
run generate --checkpoint cut/step_00000040
expect 1 "cut/tokenizer.model"
run train --text text.txt --tokenizer pieces/tokenizer.model --vocabulary 200 --out never
expect 1 "tokenizer.model has 300 tokens, but the model has 200"
absent never

# A BERT: learns from pairs of sentences, is resumed bit for bit, and does not write.
for i in {1..240}; do echo "the cat $((i % 7)) sat on the mat; the dog $((i * 7 % 13)) ran"; ((i % 6)) || echo; done > lines.txt
bert=(--text lines.txt --model bert-tiny --layers 1 --width 16 --heads 2 --length 24 --batch 4
      --vocabulary 50 --dropout 0.1 --device cpu --threads 1)
run train "${bert[@]}" --steps 40 --out bert
expect 0 "sentences of [0-9]+ documents" "unigram entropy" "next sentence: .*95 % confidence" "validation loss [0-9.]+, checkpoint bert/step_00000040"
run train "${bert[@]}" --steps 40 --stop-at 17 --out bert_cut
run train --resume --out bert_cut --device cpu --threads 1
expect 0 "checkpoint bert_cut/step_00000040"
same bert/step_00000040/rank_0.bin bert_cut/step_00000040/rank_0.bin
run generate --checkpoint bert
expect 1 "only a GPT writes|is no GPT"
run train "${bert[@]}" --tokenizer bytes --out never
expect 1 "--tokenizer bpe"
run train "${tiny[@]}" --mask 0.2 --out never
expect 1 "--mask .*--family bert"
absent never

run generate --checkpoint whole --prompt "1: the" --tokens 40 --seed 3 --device cpu
expect 0 "^1: the"
first=$out
run generate --checkpoint whole/step_00000300 --prompt "1: the" --tokens 40 --seed 3 --device cpu
[ "$out" = "$first" ] || { echo "the same seed wrote another text"; bad=1; }
run generate --checkpoint whole --temperature -1
expect 1 "temperature .*-1"
run generate --checkpoint nowhere
expect 1 "nowhere"
run info whole --verify
expect 0 "step_00000300" "\(best\)" "tokens.weight .*f32 \(256, 16\)" "optimizer.m.tokens.weight" "all hashes"

# A full disk (here: a limit on the size of files) leaves the checkpoint before it.
run train "${tiny[@]}" --steps 40 --stop-at 20 --out full
expect 0 "stopped at step 20"
out=$(trap '' XFSZ; ulimit -f 8; "$gradus" train --resume --out full --device cpu 2>&1 < /dev/null)
status=$?
expect 1 "step 40 is not saved" "File too large" "the newest is full/step_00000020"
run train --resume --out full --device cpu
expect 0 "checkpoint full/step_00000040"

# Without --out each run has a place of its own.
for i in 1 2; do run train "${tiny[@]}" --steps 2 --sample 0; done
expect 0 "checkpoint runs/text-2/step_00000002"
exit $bad
