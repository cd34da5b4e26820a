#!/usr/bin/env node
// Launcher of the command `svc`: plain JavaScript, so that a Node too old for .ts files gets a sentence and not a syntax error.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 24 || (major === 24 && minor < 12)) {
  process.stderr.write(`svc needs Node 24.12 or newer; this is ${process.version}.\n`);
  process.exit(1);
}
await import('./cli/main.ts');
