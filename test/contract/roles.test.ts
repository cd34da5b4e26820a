// What each role may call: one table for every public route. A route without a place in it fails.
import { afterAll, describe, expect, test } from 'vitest';
import type { Route } from '../../control-plane/base/http/route.ts';
import { Role } from '../../shared/api/auth.ts';
import { addPerson } from '../kit/people.ts';
import { type Answer, openApi } from './api.ts';
import { refusalOf } from './refusals.ts';
import { urlWith } from './resources.ts';

const api = await openApi();
afterAll(() => api.close());

/** Who may call what, by operation. */
const TABLE = {
  everybody: `
    readBlob writeBlob getSignInMethods signUp signIn useLink beginPasskeySignIn signInWithPasskey beginOidc finishOidc beginDeviceLogin
    redeemDeviceLogin showInvitation acceptInvitation listGpuTypes listPricing enrollHost listTemplates getEnvironments home
    llms manual manualPage console console_device console_welcome console_invitation console_oidc consoleScreen consoleAsset`,
  'signed in': `
    getSession switchOrg setMailNotices signOut listSessions endSession stepUp changePassword enrolTotp confirmTotp removeTotp
    makeRecoveryCodes beginPasskey addPasskey listPasskeys removePasskey getDeviceLogin approveDeviceLogin
    denyDeviceLogin leaveOrg joinOrg`,
  'owner, member, billing, read-only': `
    listMembers listInvitations listUsage getBalance listEarnings listPayouts getBill getInstanceBill listInstanceCosts getSupplier listMachines
    getMachine listMachineChecks listMachineOutages listMachineRentals listMachineProbes listReceipts getReceipt listReceiptTotals listDeposits getDeposit getDepositMethods getOrganisation getPayoutDestination getStatement listEvents
    getMachineMetrics scrapeMetrics`,
  'owner, member, billing': `
    createDeposit`,
  'owner, member, read-only': `
    listApiKeys getOperation listReservations listInstances getInstance listInstanceEvents readInstanceLogs
    listSshKeys listRegistryCredentials listWebhookEndpoints getWebhookEndpoint listWebhookDeliveries getWebhookDelivery listModels
    getModel listFiles getFile getFileReport getFileContent listFineTuningJobs getFineTuningJob
    listFineTuningEvents listFineTuningCheckpoints quoteFile getInstanceMetrics`,
  'owner, member': `
    createApiKey revokeApiKey createSshKey deleteSshKey becomeSupplier registerMachine reissueEnrollmentToken
    changeMachine delistMachine relistMachine createRegistryCredential deleteRegistryCredential createInstance
    renameInstance getInstanceRequest deleteInstance createWebhookEndpoint changeWebhookEndpoint rotateWebhookSecret
    deleteWebhookEndpoint retryWebhookDelivery testWebhookEndpoint createChatCompletion createEmbeddings createImages createVideo
    listVideos getVideo getVideoContent cancelVideo deleteVideo uploadFile createUpload addUploadPart
    completeUpload cancelUpload deleteFile createFineTuningJob cancelFineTuningJob changePayoutDestination
    cancelPayoutDestination`,
  owner: `
    changeMember removeMember createInvitation revokeInvitation`,
} as const;
/** Routes that cost money now or later: a suspended organisation may not call them. */
const SPENDING = [
  'createInstance',
  'createChatCompletion',
  'createEmbeddings',
  'createImages',
  'createVideo',
  'createFineTuningJob',
];

const ROLES = Role.options;
const placed = Object.entries(TABLE).flatMap(([who, names]) =>
  names
    .trim()
    .split(/\s+/)
    .map((operationId): [string, string] => [operationId, who]),
);
const byName = new Map(api.routes.map((route) => [route.operationId, route]));
const account = await api.account();
const { orgId } = account;
const people = new Map(
  await Promise.all(ROLES.map(async (role) => [role, await addPerson(api.world, { orgId, role })] as const)),
);
/** Past the check of the role, whatever comes then: nothing has the id `x`. */
const isLetIn = (path: string, answer: Answer): boolean =>
  answer.status < 400 ||
  !['insufficient_scope', 'unauthorized', 'session_required'].includes(refusalOf(path, answer).code);

async function call(route: Route, role: Role): Promise<Answer> {
  const url = urlWith(route.path, 'x');
  const as = people.get(role);
  if (as === undefined) throw new Error(`nobody is ${role}`);
  return api.call(route.method, url, { as });
}

test('the login of an instance is for those who may change the instance', async () => {
  await api.world.machine();
  const id = await api.world.run(account);
  const statusFor = async (role: Role): Promise<number> => {
    const as = people.get(role);
    if (as === undefined) throw new Error(`nobody is ${role}`);
    return (await api.call('GET', `/v1/instances/${id}?include=credentials`, { as })).status;
  };
  expect(await Promise.all(ROLES.map(async (role) => [role, await statusFor(role)]))).toEqual([
    ['owner', 200],
    ['member', 200],
    ['billing', 403],
    ['read-only', 403],
  ]);
});

test('every route has one place in the table', () => {
  expect(placed.map(([name]) => name).toSorted()).toEqual([...byName.keys()].toSorted());
});

const scoped = placed.filter(([, who]) => who !== 'everybody' && who !== 'signed in');
describe('a member', () => {
  test.each(scoped)('calls %s as %s, and as nobody else', async (name, who) => {
    const route = byName.get(name) as Route;
    const letIn: string[] = [];
    for (const role of ROLES) if (isLetIn(route.path, await call(route, role))) letIn.push(role);
    expect(letIn.join(', ')).toBe(who);
  });

  test('of any role calls what is for signed-in people, and nobody without a session does', () => {
    const personal = placed.filter(([, who]) => who === 'signed in').map(([name]) => byName.get(name)?.scope);
    expect(new Set(personal)).toEqual(new Set(['session']));
    const open = placed.filter(([, who]) => who === 'everybody').map(([name]) => byName.get(name)?.scope);
    expect(new Set(open)).toEqual(new Set(['none']));
  });
});

test('what costs money is marked, so that a suspended organisation cannot do it', () => {
  const marked = api.routes.filter(({ spends }) => spends === true).map(({ operationId }) => operationId);
  expect(marked.toSorted()).toEqual(SPENDING.toSorted());
});

test('API keys, members, payout destinations and second factors are changed by confirmed sessions only', () => {
  const asked = api.routes.filter(({ stepUp }) => stepUp === true).map(({ operationId }) => operationId);
  expect(asked.toSorted()).toEqual([
    'addPasskey',
    'approveDeviceLogin',
    'beginPasskey',
    'changeMember',
    'changePassword',
    'changePayoutDestination',
    'confirmTotp',
    'createApiKey',
    'createInvitation',
    'enrolTotp',
    'leaveOrg',
    'makeRecoveryCodes',
    'removeMember',
    'removePasskey',
    'removeTotp',
    'revokeApiKey',
    'revokeInvitation',
  ]);
});
