// The control plane's configuration: defaults, every rule, and messages that name the line.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { hostnameOf, mailSettingsOf, oidcSettingsOf, readConfig, s3Settings } from '../../control-plane/config.ts';
import { JOB_FILE_BYTES_MAX } from '../../shared/limits.ts';

let directory: string;
let file: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'svc-'));
  file = join(directory, 'config.yaml');
});
afterEach(() => rmSync(directory, { recursive: true }));

const read = (...lines: string[]) => {
  writeFileSync(file, lines.join('\n'));
  return readConfig(file);
};

test('an empty file is a complete configuration', () => {
  expect(read('')).toMatchObject({
    listen: { host: '127.0.0.1', port: 8080 },
    database: { sqlite: '/var/lib/svc-control-plane/control-plane.db' },
    ssh: { host: '0.0.0.0', port_range: { first: 20_000, last: 29_999 } },
    platform_fee_bps: 1_500,
    trust_proxy: [],
    rate_limits: {
      per_key_per_second: 100,
      per_ip_per_second: 200,
      burst: 400,
      inference_per_key_per_second: 20,
      inference_burst: 40,
      inference_per_org_per_second: 100,
      inference_burst_per_org: 200,
    },
    webhooks: { max_attempts: 5, allowed_networks: [], allowed_ports: [443, 8443] },
  });
});

test('a partial section keeps the defaults of its other settings', () => {
  expect(read('ssh:', '  domain: ssh.example.com').ssh).toEqual({
    host: '0.0.0.0',
    domain: 'ssh.example.com',
    port_range: { first: 20_000, last: 29_999 },
  });
});

test.each([
  [['base_url: https://api.example.com:8443/v1'], 'api.example.com'],
  [['base_url: "http://[2001:db8::1]:8080/v1"'], '2001:db8::1'],
  [['base_url: https://api.example.com/v1', 'ssh: { domain: ssh.example.com }'], 'i-1.ssh.example.com'],
])('with %j, an instance is reached by SSH at %s', (lines, hostname) => {
  expect(hostnameOf(read(...lines), 'i-1')).toBe(hostname);
});

test('every setting is read', () => {
  const config = read(
    'listen: { host: 0.0.0.0, port: 443 }',
    'tls: { certificate_file: /etc/svc/api.pem, key_file: /etc/svc/api.key }',
    'apps: { domain: apps.example.com, listen: { host: 0.0.0.0, port: 8443 }, public_port: 443 }',
    'disk_price_per_gb_hour: 0.0003',
    'open_launches_per_org: 1',
    'base_url: https://api.example.com/v1',
    'database: { postgres: "postgres://svc@db/svc" }',
    'admin_socket: /run/svc/admin.sock',
    'secret_file: /etc/svc/secret',
    'log_level: debug',
    'ssh: { host: 203.0.113.1, domain: ssh.example.com, port_range: { first: 8444, last: 65535 } }',
    'platform_fee_bps: 10000',
    'launch_hold_minutes: 1440',
    'trust_proxy: [10.0.0.0/8, "::1"]',
    'rate_limits: { per_key_per_second: 0.5, per_ip_per_second: 1000000, burst: 1, inference_per_key_per_second: 0.5, inference_burst: 1, inference_per_org_per_second: 0.5, inference_burst_per_org: 1 }',
    'metrics_listen: { host: 127.0.0.1, port: 9100 }',
    'retention: { events_days: 30, operations_days: 2, workloads_days: 36500, receipts_days: 31 }',
    'videos: { open_per_org: 1, file_mib_max: 1048576 }',
    `files: { file_mib_max: ${JOB_FILE_BYTES_MAX / 1024 ** 2} }`,
    'webhooks: { max_attempts: 6, allowed_networks: [10.0.0.0/8, "fd00::/8"], allowed_ports: [443] }',
    'templates_file: /etc/svc/templates.yaml',
    'environments_file: /etc/svc/environments.yaml',
    'model_hub_url: http://hub.lan:8080/api',
    'images: { private_registries: [{ host: "registry.lan:5000", plain_http: true }, { host: registry.corp }] }',
  );
  expect(config.database).toEqual({ postgres: 'postgres://svc@db/svc' });
  expect(config.trust_proxy).toEqual(['10.0.0.0/8', '::1']);
  expect(config.images.private_registries).toEqual([
    { host: 'registry.lan:5000', plain_http: true },
    { host: 'registry.corp', plain_http: false },
  ]);
  expect(config).toMatchObject({
    templates_file: '/etc/svc/templates.yaml',
    environments_file: '/etc/svc/environments.yaml',
    model_hub_url: 'http://hub.lan:8080/api',
  });
  expect(config.metrics_listen).toEqual({ host: '127.0.0.1', port: 9100 });
});

describe('a mistake is reported with its line', () => {
  test.each([
    ['an unknown key', ['log_level: info', 'colour: red'], /config\.yaml:2: colour: is not a known field/],
    ['an unknown key in a section', ['ssh:', '  host: 0.0.0.0', '  port: 22'], /:3: ssh\.port: is not a known field/],
    ['a port that is missing', ['listen: { host: x }'], /:1: listen\.port: is required$/],
    ['a port above the range', ['listen:', '  host: x', '  port: 65536'], /:3: listen\.port: /],
    ['a word for a number', ['platform_fee_bps: much'], /:1: platform_fee_bps: must be a number$/],
    ['a number for a section', ['log_level: info', 'listen: 8080'], /:2: listen: must be an object$/],
    ['a list for the whole', ['- a'], /:1: the file: must be an object$/],
    ['a fee above all', ['platform_fee_bps: 10001'], /:1: platform_fee_bps: /],
    ['no launch at all', ['open_launches_per_org: 0'], /:1: open_launches_per_org: /],
    ['no video at all', ['videos: { open_per_org: 0 }'], /:1: videos\.open_per_org: /],
    ['no room for a video', ['videos: { file_mib_max: 0 }'], /:1: videos\.file_mib_max: /],
    [
      'a file that no host takes',
      [`files: { file_mib_max: ${JOB_FILE_BYTES_MAX / 1024 ** 2 + 1} }`],
      /:1: files\.file_mib_max: /,
    ],
    ['more than a terabyte', ['videos: { file_mib_max: 1048577 }'], /:1: videos\.file_mib_max: /],
    ['a hold of nothing', ['launch_hold_minutes: 0'], /:1: launch_hold_minutes: /],
    ['too many webhook attempts', ['webhooks: { max_attempts: 7 }'], /:1: webhooks\.max_attempts: /],
    ['events too short', ['retention: { events_days: 29 }'], /:1: retention\.events_days: /],
    ['operations too short', ['retention: { operations_days: 1 }'], /:1: retention\.operations_days: /],
    ['receipts too short', ['retention: { receipts_days: 30 }'], /:1: retention\.receipts_days: /],
    ['workloads too short', ['retention: { workloads_days: 0 }'], /:1: retention\.workloads_days: /],
    ['no webhook attempt', ['webhooks: { max_attempts: 0 }'], /:1: webhooks\.max_attempts: /],
    [
      'a network that is an address',
      ['webhooks:', '  allowed_networks: [10.0.0.1]'],
      /:2: webhooks\.allowed_networks\[0\]: must be a network like 10\.0\.0\.0\/8$/,
    ],
    ['a base_url without /v1', ['base_url: https://api.example.com'], /:1: base_url: must end with \/v1/],
    [
      'TLS behind a plain base_url',
      ['base_url: http://api.example.com/v1', 'tls: { certificate_file: /c, key_file: /k }'],
      /:1: base_url: must begin with https: if tls is set/,
    ],
    ['a certificate without its key', ['tls:', '  certificate_file: /c'], /:1: tls\.key_file: /],
    ['a base_url that is none', ['base_url: ftp://x/v1'], /:1: base_url: must be a URL/],
    [
      'two databases',
      ['database: { sqlite: /a, postgres: "postgres://x" }'],
      /:1: database: .*either sqlite or postgres/,
    ],
    ['no database', ['database: {}'], /:1: database: .*either sqlite or postgres/],
    ['a relative path', ['database:', '  sqlite: data.db'], /:2: database\.sqlite: must be an absolute path/],
    [
      'a port range backwards',
      ['ssh:', '  port_range: { first: 9, last: 8 }'],
      /:2: ssh\.port_range: first must not be above last/,
    ],
    [
      'a domain with capitals',
      ['ssh:', '  domain: Ssh.example.com'],
      /:2: ssh\.domain: must be a lower-case domain name/,
    ],
    ['a socket path that no system takes', [`admin_socket: /${'x'.repeat(107)}`], /:1: admin_socket: /],
    [
      'a relative path of templates',
      ['templates_file: templates.yaml'],
      /:1: templates_file: must be an absolute path/,
    ],
    ['a model hub that is none', ['model_hub_url: hub'], /:1: model_hub_url: must be a URL/],
    ['a model hub that ends with /', ['model_hub_url: https://hub/api/'], /:1: model_hub_url: must not end with/],
    ['a rate of nothing', ['rate_limits:', '  per_ip_per_second: 0'], /:2: rate_limits\.per_ip_per_second: /],
    [
      'fewer open requests of an organisation than of a key',
      ['open_inference_requests_per_key: 10', 'open_inference_requests_per_org: 9'],
      /:2: open_inference_requests_per_org: must not be below open_inference_requests_per_key/,
    ],
    [
      'a lower rate of an organisation than of a key',
      ['rate_limits:', '  inference_per_org_per_second: 19.9'],
      /:2: rate_limits\.inference_per_org_per_second: must not be below inference_per_key_per_second/,
    ],
    [
      'a smaller burst of an organisation than of a key',
      ['rate_limits:', '  inference_burst_per_org: 39'],
      /:2: rate_limits\.inference_burst_per_org: must not be below inference_burst/,
    ],
    [
      'SSH ports that contain the port of the API',
      ['listen: { host: 127.0.0.1, port: 20000 }', 'ssh:', '  port_range: { first: 20000, last: 20010 }'],
      /:3: ssh\.port_range: must not contain 20000, the port of listen: instances get the ports of the range/,
    ],
    [
      'SSH ports that contain the port of the metrics',
      ['metrics_listen: { host: "::", port: 29999 }'],
      /: ssh\.port_range: must not contain 29999, the port of metrics_listen/,
    ],
    [
      'metrics at the address of the API',
      ['listen: { host: 0.0.0.0, port: 8080 }', 'metrics_listen: { host: 127.0.0.1, port: 8080 }'],
      /:2: metrics_listen: must not have port 8080, which listen has/,
    ],
    [
      'applications at the address of the API',
      ['apps:', '  domain: apps.test', '  listen: { host: 127.0.0.1, port: 8080 }'],
      /:3: apps\.listen: must not have port 8080, which listen has/,
    ],
    [
      'a proxy that is no address',
      ['trust_proxy:', '  - 10.0.0.1', '  - proxy'],
      /:3: trust_proxy\[1\]: must be an address or a network like 10\.0\.0\.0\/8$/,
    ],
    ['broken YAML', ['log_level: [', 'x'], /config\.yaml:\d: /],
  ])('%s', (_what, lines, message) => {
    expect(() => read(...lines)).toThrow(message);
  });
  test('listeners with one port on two addresses, or with a port that the system chooses, are no mistake', () => {
    const other = ['listen: { host: 127.0.0.1, port: 9 }', 'metrics_listen: { host: 127.0.0.2, port: 9 }'];
    expect(() => read(...other)).not.toThrow();
    expect(() => read(...other.map((line) => line.replace('9 }', '0 }').replace('0.2', '0.1')))).not.toThrow();
  });
  test('several mistakes are reported together', () => {
    expect(() => read('log_level: loud', 'colour: red')).toThrow(
      /:1: log_level: .*\n.*:2: colour: is not a known field/,
    );
  });
});

test.each([
  ['just below the SSH ports', 19_999, '0.0.0.0'],
  ['just above the SSH ports', 30_000, '0.0.0.0'],
  ['among the SSH ports of another address', 20_000, '203.0.113.1'],
])('the API may have a port %s', (_where, port, sshHost) => {
  expect(read(`listen: { host: 127.0.0.1, port: ${port} }`, `ssh: { host: ${sshHost} }`).listen.port).toBe(port);
});

test('the file comes from the option, the environment or the package', () => {
  expect(() => readConfig(undefined, '/no/config.yaml')).toThrow(
    'name the configuration with --config <file> or SVC_CONFIG: /no/config.yaml does not exist',
  );
  const installed = join(directory, 'installed.yaml');
  writeFileSync(installed, 'log_level: error');
  writeFileSync(file, 'log_level: warn');
  expect(readConfig(undefined, installed).log_level).toBe('error');
  process.env['SVC_CONFIG'] = file;
  expect(readConfig(undefined, installed).log_level).toBe('warn');
  expect(readConfig(installed, '/no/config.yaml').log_level).toBe('error');
  delete process.env['SVC_CONFIG'];
  expect(() => readConfig(undefined, directory)).toThrow(
    `the default of --config names ${directory}, which is a directory`,
  );
});

test('a file that does not exist is reported with the setting that names it', () => {
  expect(() => readConfig('/no/config.yaml')).toThrow('--config names /no/config.yaml, which does not exist');
  expect(() => readConfig(directory)).toThrow(`--config names ${directory}, which is a directory`);
  process.env['SVC_CONFIG'] = '/no/config.yaml';
  expect(() => readConfig(undefined)).toThrow('SVC_CONFIG names /no/config.yaml, which does not exist');
  delete process.env['SVC_CONFIG'];
});

describe('blobs_s3', () => {
  const store = (...more: string[]): string[] => [
    'blobs_s3:',
    '  bucket: files',
    `  access_key_file: ${join(directory, 'key')}`,
    `  secret_key_file: ${join(directory, 'secret-key')}`,
    ...more,
  ];
  const ENDPOINT = '  endpoint: https://s3.example.com';

  test('takes its keys from files, and has defaults', () => {
    writeFileSync(join(directory, 'key'), 'AKEXAMPLE\n');
    writeFileSync(join(directory, 'secret-key'), ' a/b+c= \n');
    expect(s3Settings(read(...store(ENDPOINT)))).toEqual({
      endpoint: 'https://s3.example.com',
      region: 'us-east-1',
      bucket: 'files',
      pathStyle: true,
      accessKey: 'AKEXAMPLE',
      secretKey: 'a/b+c=',
    });
    expect(s3Settings(read(''))).toBeUndefined();
  });

  test.each(['', '\n', 'two words', 'two\nlines', 'umläut'])(
    'refuses the key file %j by its name, without its content',
    (text) => {
      writeFileSync(join(directory, 'key'), 'AKEXAMPLE');
      writeFileSync(join(directory, 'secret-key'), text);
      const config = read(...store(ENDPOINT));
      expect(() => s3Settings(config)).toThrow(
        `${join(directory, 'secret-key')} must hold one key in one line (blobs_s3.secret_key_file)`,
      );
    },
  );

  test('refuses a key file that is missing', () => {
    const config = read(...store(ENDPOINT));
    expect(() => s3Settings(config)).toThrow('blobs_s3.access_key_file names');
  });

  test.each([
    ['  endpoint: https://s3.example.com/files', 'without a path'],
    ['  endpoint: https://me:secret@s3.example.com', 'without a path'],
    ['  endpoint: ftp://s3.example.com', 'must be a URL'],
    [`${ENDPOINT}\n  secret_key: abc`, 'secret_key'],
    [`${ENDPOINT}\nblobs_dir: /var/lib/blobs`, 'must not be set beside blobs_dir'],
  ])('refuses %j', (lines, message) => {
    expect(() => read(...store(...lines.split('\n')))).toThrow(message);
  });

  test.each(['a', 'ab', 'UPPER', 'a_b', '-ab', `a${'b'.repeat(63)}`])('refuses the bucket %s', (bucket) => {
    const lines = store(ENDPOINT).map((line) => line.replace('bucket: files', `bucket: ${bucket}`));
    expect(() => read(...lines)).toThrow('must be the name of a bucket');
  });
});

describe('smtp', () => {
  const smtp = (...lines: string[]): string =>
    ['smtp:', '  from: svc@example.com', ...lines.map((line) => `  ${line}`)].join('\n');
  const settings = (...lines: string[]) => mailSettingsOf(read(smtp('host: mail.lan', ...lines)));
  test('needs a host, and TLS is the default', () => {
    expect(mailSettingsOf(read(''))).toBeUndefined();
    expect(settings()).toEqual({
      host: 'mail.lan',
      port: 587,
      security: 'starttls',
      login: undefined,
      from: { name: '', address: 'svc@example.com' },
    });
    expect(settings('from_name: Example GPUs')?.from.name).toBe('Example GPUs');
    expect(() => read(smtp())).toThrow('smtp.host');
  });

  test('takes a login from a file, and sends it over TLS only', () => {
    const password = join(directory, 'smtp-password');
    writeFileSync(password, 'secret\n');
    const login = ['username: svc', `password_file: ${password}`];
    expect(settings(...login)?.login).toEqual({ user: 'svc', password: 'secret' });
    expect(() => settings('username: svc')).toThrow('must be set with username');
    expect(() => settings(...login, 'security: none')).toThrow('must not be none');
    expect(() => settings('username: svc', 'password_file: /nowhere')).toThrow('smtp.password_file');
  });
});

describe('oidc', () => {
  const oidc = (issuer: string, secret: string) =>
    oidcSettingsOf(read('oidc:', `  issuer: ${issuer}`, '  client_id: svc', `  client_secret_file: ${secret}`));

  test('is a provider with a secret in a file, over HTTPS unless it is on this machine', () => {
    const secret = join(directory, 'client-secret');
    writeFileSync(secret, 'abc\n');
    expect(oidcSettingsOf(read(''))).toBeUndefined();
    const issuer = 'https://login.example.com';
    expect(oidc(issuer, secret)).toEqual({ issuer, clientId: 'svc', clientSecret: 'abc' });
    expect(oidc('http://localhost:8080', secret)?.issuer).toBe('http://localhost:8080');
    for (const wrong of ['http://login.example.com', 'http://localhost.example.com', 'login'])
      expect(() => oidc(wrong, secret)).toThrow(/must be a URL|must begin with https/);
    expect(() => oidc(issuer, '/nowhere')).toThrow('oidc.client_secret_file');
  });
});
