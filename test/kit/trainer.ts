// A small real trainer: a shell script that honours the contract of jobs and fits a line to its training file by gradient descent.
import { busyboxImage, type TestImage } from './images.ts';
import type { Registry } from './registry.ts';

export interface TrainerOptions {
  name: string;
  steps: number;
  /** Steps between two checkpoints. */
  every: number;
  /** What is wrong with it: nothing if it is left out. */
  fault?: 'crashes' | 'hangs' | 'lies' | 'prints garbage' | 'fills its disk';
}

/** Learns how long the lines of its file are. Each step takes about a fifth of a second. */
export function trainerImage(registry: Registry, { name, steps, every, fault }: TrainerOptions): Promise<TestImage> {
  const Env = [
    'PATH=/usr/sbin:/usr/bin:/sbin:/bin',
    `STEPS=${steps}`,
    `EVERY=${every}`,
    `FAULT=${fault?.replaceAll(' ', '-') ?? ''}`,
  ];
  return busyboxImage(registry, {
    name,
    config: { Entrypoint: ['/train'], Cmd: [], Env },
    files: { '/train': SCRIPT },
  });
}

/** The gradient of the mean squared error of y = w * 1, where y is the length of a line in hundreds of bytes. */
const SCRIPT = `#!/bin/sh
out=/job/out
step=0
w=0
loss=0
if [ -f /job/resume.ckpt ]; then read step w < /job/resume.ckpt; fi
say() { echo "$1" >> $out/events.jsonl; }
checkpoint() {
  echo "$step $w" > /job/ckpt/new
  mv /job/ckpt/new /job/ckpt/step-$step
  say "{\\"type\\":\\"checkpoint\\",\\"step\\":$step,\\"file\\":\\"step-$step\\",\\"loss\\":$loss}"
}
result() {
  echo "w=$w after $step steps" > $out/adapter.txt
  sum=$(sha256sum $out/adapter.txt | cut -d ' ' -f 1)
  if [ "$FAULT" = lies ]; then sum=$(echo other | sha256sum | cut -d ' ' -f 1); fi
  bytes=$(wc -c < $out/adapter.txt)
  echo "{\\"files\\":[{\\"name\\":\\"adapter.txt\\",\\"bytes\\":$bytes,\\"sha256\\":\\"$sum\\"}]}" > $out/result.json
}
if [ "$FAULT" = hangs ]; then trap '' TERM; else trap 'checkpoint; result; exit 0' TERM; fi
say '{"type":"message","message":"training begins"}'
while [ $step -lt $STEPS ]; do
  step=$((step + 1))
  set -- $(awk -v w=$w '{ e = w - length($0) / 100; g += 2 * e; l += e * e } END { print w - 0.05 * g / NR, l / NR }' /job/train.jsonl)
  w=$1
  loss=$2
  say "{\\"type\\":\\"metrics\\",\\"step\\":$step,\\"total_steps\\":$STEPS,\\"loss\\":$loss}"
  if [ $((step % EVERY)) -eq 0 ]; then checkpoint; fi
  if [ $step -ge 5 ]; then
    case "$FAULT" in
      crashes) exit 3 ;;
      hangs) while true; do sleep 1; done ;;
      fills-its-disk) fallocate -l 10100m $out/large; cat /dev/zero > $out/rest; exit 1 ;;
      prints-garbage) head -c 300 /dev/urandom >> $out/events.jsonl; echo >> $out/events.jsonl ;;
    esac
  fi
  sleep 0.2
done
result
`;
