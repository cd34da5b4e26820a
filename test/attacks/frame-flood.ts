// A hostile guest: it answers like ours, and then sends the smallest legal frames as fast as it can, on every session.
// Run it with the path of the holder's socket for guests, and `empty` or `small`.
import { connect } from 'node:net';
import { eachFrame, FRAME, sendJson } from '../../agent/wire/frames.ts';

const [, , path = '', kind] = process.argv;
const frame = kind === 'empty' ? Buffer.from([FRAME.data, 0, 0, 0, 0]) : Buffer.from([FRAME.data, 0, 0, 0, 1, 120]);
const flood = Buffer.concat(Array.from({ length: Math.floor(65_536 / frame.length) }, () => frame));

function serve(token: string): void {
  const socket = connect(path);
  socket.on('error', () => socket.destroy());
  sendJson(socket, { kind: 'session', token });
  sendJson(socket, { kind: 'started' });
  const pour = (): void => {
    while (!socket.destroyed && socket.write(flood));
  };
  socket.on('drain', pour);
  pour();
}

const control = connect(path);
control.on('error', () => process.exit(0));
sendJson(control, { kind: 'control' });
void eachFrame(control, 1024 * 1024, ({ payload }) => {
  const word = JSON.parse(payload.toString()) as { kind: string; token: string };
  if (word.kind === 'open') serve(word.token);
});
