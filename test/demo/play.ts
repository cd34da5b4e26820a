// What the demo does after the walk: it keeps an instance that the console can show, and prints commands to try.
import { relative } from 'node:path';
import type { CreateInstance, Instance } from '../../shared/api/instance.ts';
import { launch } from '../kit/api-client.ts';
import type { Stack } from '../kit/stack.ts';
import { CONTAINER_VARIABLE, COPY } from './elsewhere.ts';
import { MODEL } from './model.ts';
import type { Rented } from './walk.ts';

const CHAT = { model: MODEL, stream: true, messages: [{ role: 'user', content: 'What is this?' }] };

/** A running instance with a small web page. */
export function launchPage({ customer, image, offering }: Rented): Promise<Instance> {
  return launch(customer.api, { ...pageOf({ image, offering }), name: 'hello' });
}

function pageOf({ image, offering }: Pick<Rented, 'image' | 'offering'>): CreateInstance {
  const serve = 'echo hello > /index.html; exec httpd -f -p 8080 -h /';
  return {
    gpu_type: offering.gpu_type,
    gpu_count: 1,
    tier: 'on_demand',
    image,
    entrypoint: ['sh', '-c', serve],
    ports: [{ port: 8080, protocol: 'http', primary: true }],
  };
}

/** Every line can be pasted into a second terminal, in the project's folder. */
export function playLines({ controlPlane, dir }: Stack, { customer, image, offering }: Rented, link: string): string[] {
  const api = controlPlane.baseUrl;
  const node = relative(process.cwd(), process.execPath);
  const operator = `${node} control-plane/svc-control-plane.js`;
  const container = process.env[CONTAINER_VARIABLE];
  const config = `--config ${controlPlane.configPath}`;
  return [
    '',
    'It stays up until Ctrl-C. The console, in a browser on this machine, with a link that works once:',
    '',
    `  ${link}`,
    '',
    'In a second terminal:',
    '',
    ...(container === undefined ? [] : [`  docker exec -it -w ${COPY} ${container} bash`]),
    `  export KEY=${customer.key}`,
    `  curl -s ${api}/pricing`,
    `  curl -s ${api}/openapi.json`,
    `  curl -s -H "Authorization: Bearer $KEY" ${api}/balance`,
    `  curl -s -H "Authorization: Bearer $KEY" ${api}/usage`,
    '',
    '  # a chat with the model, and what it cost',
    `  curl -sN -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d '${JSON.stringify(CHAT)}' ${api}/chat/completions`,
    `  curl -s -H "Authorization: Bearer $KEY" ${api}/receipts`,
    '',
    '  # launch a second instance with a small web page, follow its operation, read it, log in, open the page',
    `  curl -s -H "Authorization: Bearer $KEY" -H "Idempotency-Key: $(date +%s)" -H 'Content-Type: application/json' \\`,
    `    -d '${JSON.stringify(pageOf({ image, offering }))}' ${api}/instances`,
    `  curl -s -H "Authorization: Bearer $KEY" ${api}/operations/<operation_id>`,
    `  curl -s -H "Authorization: Bearer $KEY" ${api}/instances`,
    `  ssh -i ${customer.identity.keyFile} -p <port> root@127.0.0.1`,
    `  curl -s -H "Authorization: Bearer $KEY" "${api}/instances/<id>?include=credentials"`,
    '  curl -sk --connect-to ::127.0.0.1: --user svc:<app_password> <app_url>/',
    '  # a shell in the browser: open <terminal_url> in a browser, user svc, password <app_password>',
    `  curl -sN -H "Authorization: Bearer $KEY" "${api}/instances/<id>/logs?follow=true"`,
    `  curl -s -X DELETE -H "Authorization: Bearer $KEY" ${api}/instances/<id>`,
    '',
    '  # the operator',
    `  ${operator} admin machine list ${config}`,
    `  ${operator} admin loops ${config}`,
    `  ${operator} ledger verify ${config}`,
    '',
    `  # logs and data: ${dir}`,
    '',
  ];
}
