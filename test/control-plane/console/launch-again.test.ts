// The form of a launch that is repeated asks for what the first one has asked for.
import { expect, test } from 'vitest';
import { draftLike, lostOf, missingOf, requestOf } from '../../../control-plane/console/web/customer/launch-form.ts';
import type { InstanceRequest } from '../../../shared/api/instance-request.ts';

const PLACE = { gpu_type: 'H100_SXM', region: 'eu-west' };
const BASE: InstanceRequest = { gpu_count: 2, tier: 'on_demand', gpu_type: 'H100_SXM', env_names: [] };
const PRIVATE = { image: 'ghcr.io/acme/app:1.2', registry_credential_id: 'rc_1' };

/** What the form sends if the person only chooses an offering, without what comes from that offering. */
function repeated(asked: InstanceRequest): Partial<InstanceRequest> {
  const { gpu_type: type, ...request } = requestOf(draftLike(asked, PLACE));
  return { ...request, ...(type === undefined ? {} : { gpu_type: type }), env_names: [] };
}

test.each<[string, Partial<InstanceRequest>]>([
  ['the default environment', {}],
  ['an environment', { environment: 'certified:pytorch@2.9' }],
  ['a template', { template_id: 'vllm' }],
  ['a private image', PRIVATE],
  ['a command', { image: 'busybox', entrypoint: ['sh', '-c'], cmd: ['sleep 5', '--'] }],
  ['a program without arguments', { image: 'busybox', entrypoint: [], cmd: [] }],
  [
    'ports',
    {
      image: 'busybox',
      ports: [
        { port: 8080, protocol: 'http', primary: true },
        { port: 8081, protocol: 'http' },
        { port: 5432, protocol: 'tcp' },
      ],
    },
  ],
  ['limits', { disk_gb: 250, auto_terminate_hours: 3, auto_terminate_on_exit: true, max_price_per_hour: 4.5 }],
  ['keys', { ssh_key_ids: ['key_1', 'key_2'] }],
  ['no key', { ssh_key_ids: [] }],
  [
    'requirements',
    {
      requirements: {
        regions: ['eu-west'],
        min_vram_gb: 41,
        min_cpu_cores: 7,
        min_ram_gb: 13,
        min_cuda_version: '12.8',
        min_uptime: 0.97,
      },
    },
  ],
])('%s is asked for again', (_what, more) => {
  const { gpu_type: type, ...asked } = { ...BASE, ...more };
  const { gpu_type: _chosen, ...request } = repeated({ ...asked, gpu_type: type });
  expect(request).toEqual(asked);
  expect(lostOf({ ...asked, gpu_type: type })).toEqual([]);
});

test('a launch by a contract names the place of the first one', () => {
  expect(repeated({ ...BASE, tier: 'reserved', gpu_type: undefined })).toEqual({
    ...BASE,
    region: 'eu-west',
    tier: 'reserved',
  });
});

test('the type that the launch got is the filter, and a launch on one host stays on the host that is chosen', () => {
  const asked = { ...BASE, gpu_type: undefined, requirements: { gpu_types: ['A100', 'H100_SXM'] } };
  expect(draftLike(asked, PLACE).filters.type).toBe('H100_SXM');
  expect(draftLike({ ...BASE, offering_id: 'of_1' }, PLACE)).toMatchObject({ isPinned: true, chosen: undefined });
});

test('values of variables are to be typed, and what the form cannot hold is named', () => {
  const draft = draftLike({ ...BASE, env_names: ['TOKEN', 'EPOCHS'] }, PLACE);
  expect(draft.env).toBe('TOKEN=\nEPOCHS=');
  expect(missingOf(draft)).toContain('Type the values of the variables');
  const image = 'busybox';
  expect(
    lostOf({ ...BASE, image, env_names: ['A'], cmd: ['a\nb'], requirements: { regions: ['eu-west', 'us-east'] } }),
  ).toEqual([
    'the values of the variables',
    'one of its regions (eu-west, us-east)',
    'the command, which has arguments of several lines',
  ]);
  expect(draftLike({ ...BASE, image, entrypoint: ['a\nb'] }, PLACE).entrypoint).toEqual({ kind: 'own', text: '' });
});
