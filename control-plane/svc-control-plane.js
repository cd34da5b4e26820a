#!/usr/bin/env node
// Launcher of the control plane: plain JavaScript, so that a Node too old for .ts files gets a sentence and not a syntax error.
import { setFlagsFromString } from 'node:v8';

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 24 || (major === 24 && minor < 12)) {
  process.stderr.write(
    `svc-control-plane needs Node 24.12 or newer; this is ${process.version}.\n` +
      'Install a newer Node, or use the one that `npm ci` brings: node_modules/.bin/node control-plane/svc-control-plane.js\n',
  );
  process.exit(1);
}
// V8 comes to allocate the rows of busy reads among old objects, where they outlive their request and keep others alive: two fifths of a
// processor went into collecting them. The setting has to be there before the code that it concerns is compiled.
setFlagsFromString('--no-allocation-site-pretenuring');
await import('./main.ts');
