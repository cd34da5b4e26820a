// The named peer of several benches: nginx on one worker, as a reverse proxy or in front of a folder.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../kit/ports.ts';
import { startHttpProgram } from '../kit/processes.ts';
import { requireProgram } from '../kit/setup.ts';

export interface Nginx {
  origin: string;
  pid: number;
  stop(): Promise<unknown>;
}

interface Site {
  /** Directives of `http`. */
  http?: string;
  /** Directives of the one location. */
  location: string;
}

/** `dir` is new. Unbuffered, with connections kept alive. `upstream` is the origin of the server behind it. */
export function startProxy(dir: string, upstream: string): Promise<Nginx> {
  const { host } = new URL(upstream);
  return startNginx(dir, {
    http: `upstream model { server ${host}; keepalive 128; keepalive_requests 1000000; }`,
    location: `proxy_pass http://model;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;`,
  });
}

/** `dir` is new. Stores what is PUT below `dir/root`, and serves it. */
export async function startFileServer(dir: string): Promise<Nginx> {
  const nginx = await startNginx(dir, {
    http: 'sendfile on;',
    location: `root ${join(dir, 'root')};
      client_max_body_size 0;
      create_full_put_path on;
      dav_methods PUT;`,
  });
  mkdirSync(join(dir, 'root'));
  return nginx;
}

async function startNginx(dir: string, site: Site): Promise<Nginx> {
  mkdirSync(dir, { mode: 0o700 });
  const port = await freePort();
  const config = join(dir, 'nginx.conf');
  writeFileSync(config, configuration(dir, port, site));
  const origin = `http://127.0.0.1:${port}`;
  const command = requireProgram('nginx');
  const program = await startHttpProgram({ command, args: ['-p', dir, '-e', 'stderr', '-c', config] }, origin);
  return { origin, pid: program.pid, stop: () => program.stop() };
}

function configuration(dir: string, port: number, { http = '', location }: Site): string {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return `daemon off;
worker_processes 1;
${process.getuid?.() === 0 ? 'user root;' : ''}
pid ${join(dir, 'nginx.pid')};
error_log stderr error;
events { worker_connections 8192; }
http {
  access_log off;
  keepalive_requests 1000000;
  ${temporary.map((name) => `${name}_temp_path ${join(dir, name)};`).join('\n  ')}
  ${http}
  server {
    listen 127.0.0.1:${port};
    location / {
      ${location}
    }
  }
}
`;
}
