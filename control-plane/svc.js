#!/usr/bin/env node
// Launcher of the command `svc`: plain JavaScript, so that a Node too old for .ts files gets a sentence and not a syntax error.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 24 || (major === 24 && minor < 12)) {
  process.stderr.write(`svc needs Node 24.12 or newer; this is ${process.version}.\n`);
  process.exit(1);
}
// Compiled code is kept in the home of this user, which halves the time to start. Node runs what it finds there, so root keeps none: its
// home may be that of another user.
if (process.getuid?.() !== 0) {
  const [{ enableCompileCache }, { homedir }, { join }] = await Promise.all([
    import('node:module'),
    import('node:os'),
    import('node:path'),
  ]);
  enableCompileCache(join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'svc', 'compiled'));
}
await import('./cli/main.ts');
