#!/usr/bin/env node
// Launcher of the control plane: plain JavaScript, so that a Node too old for .ts files gets a sentence and not a syntax error.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 24 || (major === 24 && minor < 12)) {
  process.stderr.write(
    `svc-control-plane needs Node 24.12 or newer; this is ${process.version}.\n` +
      'Install a newer Node, or use the one that `npm ci` brings: node_modules/.bin/node control-plane/svc-control-plane.js\n',
  );
  process.exit(1);
}
const { SERVE_ENVIRONMENT, SERVE_FLAGS } = await import('./base/systemd/v8.ts');
const missing = SERVE_FLAGS.filter((flag) => !process.execArgv.includes(flag));
if (process.argv[2] === 'serve' && missing.length > 0) {
  // V8 reads its sizes once, before any of our code runs: the same process begins again with them.
  const args = [process.execPath, ...missing, ...process.execArgv, ...process.argv.slice(1)];
  process.execve(process.execPath, args, { ...SERVE_ENVIRONMENT, ...process.env });
}
await import('./main.ts');
