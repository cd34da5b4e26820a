// The host's end of the data path: dials a stream by the holder's own code and carries its bytes to the target.
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { pipeline } from 'node:stream';
import { dialStream } from '../../../agent/wire/dial.ts';
import { serveOrders } from '../side.ts';

serveOrders(async ({ url, ca, port }) => {
  const stream = await dialStream({ url: String(url), ca: ca === undefined ? null : readFileSync(ca, 'utf8') });
  const target = connect({ host: '127.0.0.1', port: Number(port), allowHalfOpen: true, noDelay: true });
  const onEnd = (error: NodeJS.ErrnoException | null): void => {
    if (!error) return;
    stream.destroy();
    target.destroy();
  };
  pipeline(stream, target, onEnd);
  pipeline(target, stream, onEnd);
  return {};
});
