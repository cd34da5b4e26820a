// The guest: our program inside a container. It connects to the holder, starts the main process, and serves sessions for the holder as
// long as the container runs.
import { connect, type Socket } from 'node:net';
import { systemClock } from '../../shared/clock.ts';
import { GPUS_DIFFER_CODE, gpusDiffer } from '../gpus/visible.ts';
import { readAccount } from './account.ts';
import { readGuestConfig, type GuestConfig } from './config.ts';
import { eachFrame, FRAME, FRAME_BYTES_MAX, sendJson } from '../wire/frames.ts';
import { createListeners } from './connections.ts';
import { type MainProcess, startMainProcess } from './main-process.ts';
import { startSession, type GuestSession } from './sessions.ts';
import type { Exit, GuestHello, GuestMessage, GuestOrder } from '../wire/guest-messages.ts';

const RECONNECT_MS = 200;
const clock = systemClock();
const listeners = createListeners(clock);

/** Keeps a control connection to the holder, and reconnects after a restart of the holder. Never resolves. */
async function serve(config: GuestConfig, onConnection: (control: Socket) => void): Promise<never> {
  for (;;) {
    const control = connect(config.guestSocket);
    control.on('error', () => control.destroy());
    control.once('connect', () => {
      introduce(control, { kind: 'control' });
      onConnection(control);
    });
    const sessions = new Map<string, GuestSession>();
    await eachFrame(control, FRAME_BYTES_MAX, ({ type, payload }) => {
      if (type === FRAME.json) obey(JSON.parse(payload.toString()), config, sessions);
    }).catch(() => control.destroy());
    for (const session of sessions.values()) session.cut();
    await clock.sleep(RECONNECT_MS);
  }
}

function obey(order: GuestOrder, config: GuestConfig, sessions: Map<string, GuestSession>): void {
  switch (order.kind) {
    case 'open': {
      const socket = connect({ path: config.guestSocket });
      const deps = { clock, env: config.env, ptyModule: config.ptyModule, listeners };
      introduce(socket, { kind: 'session', token: order.token });
      sessions.set(
        order.token,
        startSession(socket, order.request, deps, () => sessions.delete(order.token)),
      );
      return;
    }
    case 'resize':
      return sessions.get(order.token)?.resize(order.cols, order.rows);
    case 'signal':
      return sessions.get(order.token)?.signal(order.signal);
    case 'cut':
      return sessions.get(order.token)?.cut();
  }
}

function introduce(socket: Socket, hello: GuestHello): void {
  sendJson(socket, hello);
}

function tellExit(control: Socket, exit: Exit): void {
  const news: GuestMessage = { kind: 'main_exit', exit };
  if (control.writable) sendJson(control, news);
}

function main(): void {
  const config = readGuestConfig(process.argv);
  const lack = gpusDiffer(config.gpuUuids);
  if (lack !== undefined) {
    process.stderr.write(`svc guest: not started, because of its GPUs: ${lack}\n`);
    process.exitCode = GPUS_DIFFER_CODE;
    return;
  }
  let control: Socket | undefined;
  let mainProcess: MainProcess | undefined;
  const { home } = readAccount(process.getuid?.() ?? 0);
  // A fault in one session must not end the guest: the container would be unreachable.
  process.on('uncaughtException', (error) => process.stderr.write(`svc guest: ${error.message}\n`));
  void serve(config, (connected) => {
    control = connected;
    // The tenant's program starts only now, after the first connection. From here on, the host counts an end of the guest or of this
    // container as caused by the tenant.
    mainProcess ??= startMainProcess(config, home, (exit) => {
      if (control !== undefined) tellExit(control, exit);
    });
    const exit = mainProcess.exit();
    if (exit !== null) tellExit(connected, exit);
  });
}

main();
