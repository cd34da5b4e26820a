// The named peer: nginx as a reverse proxy in front of the same model server, on one worker, unbuffered, with connections kept alive.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../kit/ports.ts';
import { httpReady, startProgram } from '../../kit/processes.ts';
import { requireProgram } from '../../kit/setup.ts';

export interface Nginx {
  origin: string;
  stop(): Promise<unknown>;
}

/** `dir` is new. `upstreamPort` is of the model server. */
export async function startNginx(dir: string, upstreamPort: number): Promise<Nginx> {
  mkdirSync(dir, { mode: 0o700 });
  const port = await freePort();
  const config = join(dir, 'nginx.conf');
  writeFileSync(config, configuration(dir, port, upstreamPort));
  const program = startProgram({ command: requireProgram('nginx'), args: ['-p', dir, '-e', 'stderr', '-c', config] });
  process.once('exit', () => void program.stop());
  const origin = `http://127.0.0.1:${port}`;
  try {
    await httpReady(`${origin}/`);
  } catch (error) {
    await program.stop();
    throw new Error(`nginx did not come up:\n${program.output()}`, { cause: error });
  }
  return { origin, stop: () => program.stop() };
}

function configuration(dir: string, port: number, upstreamPort: number): string {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return `daemon off;
worker_processes 1;
${process.getuid?.() === 0 ? 'user root;' : ''}
pid ${join(dir, 'nginx.pid')};
error_log stderr error;
events { worker_connections 1024; }
http {
  access_log off;
  keepalive_requests 1000000;
  ${temporary.map((name) => `${name}_temp_path ${join(dir, name)};`).join('\n  ')}
  upstream model { server 127.0.0.1:${upstreamPort}; keepalive 128; keepalive_requests 1000000; }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://model;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
}
`;
}
