// What is read from a node of an EVM chain: which logs are payments, which answers are none, and how a node is asked for less.
import { beforeEach, describe, expect, test } from 'vitest';
import { openEvmReader } from '../../../../control-plane/money/deposits/evm.ts';
import type { BlockReader } from '../../../../control-plane/money/deposits/reader.ts';
import { NO_ANSWER, type Rpc, RpcError } from '../../../../control-plane/money/deposits/rpc.ts';

const TOKEN = '0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48';
const OWNER = '0x52908400098527886E0F7030069857D2E4169EE7';
const SENDER = '0x8617E340B3D01FA5F11F306F4090FD50E238070D';
const ORACLE = '0x40C57923924B5c5c5455c48D93317139ADDaC8fb';
/** keccak256 of `Transfer(address,address,uint256)`, as every block explorer shows it. */
const TRANSFER = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';

const word = (value: number | string): string =>
  `0x${(typeof value === 'number' ? value.toString(16) : value.slice(2).toLowerCase()).padStart(64, '0')}`;
const log = (patch: object = {}) => ({
  address: TOKEN.toLowerCase(),
  topics: [TRANSFER, word(SENDER), word(OWNER)],
  data: word(5),
  blockNumber: '0x10',
  blockHash: '0xh16',
  transactionHash: '0xt',
  logIndex: '0x2',
  ...patch,
});
const block = (number: number, patch: object = {}) => ({
  number: `0x${number.toString(16)}`,
  hash: `0xh${number}`,
  timestamp: '0x64',
  ...patch,
});
const PAID = {
  txHash: '0xt',
  logIndex: 2,
  block: { number: 16, hash: '0xh16', ms: 100_000 },
  from: SENDER,
  to: OWNER,
  asset: 'usdc',
  units: 5n,
};

type Answer = (params: readonly unknown[]) => unknown;
let answers: Record<string, Answer>;
let asked: string[];
beforeEach(() => {
  asked = [];
  answers = {
    eth_getBlockByNumber: ([which]) => {
      const tags: Record<string, number> = { latest: 20, finalized: 12 };
      return block(tags[String(which)] ?? Number(which));
    },
    eth_getLogs: () => [log()],
    eth_chainId: () => '0x1',
    eth_call: () => word(6),
  };
});
function open(settings: Partial<Parameters<typeof openEvmReader>[1]> = {}): BlockReader {
  const rpc: Rpc = {
    call: async (method, params, result) => {
      asked.push(method);
      return result.parse(answers[method]?.(params));
    },
    close: async () => undefined,
  };
  return openEvmReader(
    'ethereum',
    { finality: 'finalized', contracts: { usdc: TOKEN }, oracle: ORACLE, ...settings },
    rpc,
  );
}
const range = { from: 10, to: 20 };

describe('a log of a node', () => {
  test('is a payment of the tokens that it names', async () => {
    expect(await open().transfers(range, [OWNER])).toEqual({ transfers: [PAID], readTo: 20 });
  });

  test.each([
    ['of another contract', { address: '0x0000000000000000000000000000000000000001' }],
    ['of another event', { topics: [word(1), word(SENDER), word(OWNER)] }],
    ['that a reorganisation has removed', { removed: true }],
    ['of no tokens', { data: word(0) }],
    ['without an amount', { data: '0x' }],
  ])('%s is no payment', async (_what, patch) => {
    answers['eth_getLogs'] = () => [log(patch)];
    expect((await open().transfers(range, [OWNER])).transfers).toEqual([]);
  });

  test('stands in the order of blocks and of places within them, and each block is read once', async () => {
    const late = { blockNumber: '0x11', blockHash: '0xh17', logIndex: '0x0' };
    answers['eth_getLogs'] = () => [log(late), log({ logIndex: '0x3' }), log({ logIndex: '0x1' })];
    const { transfers: found } = await open().transfers(range, [OWNER]);
    expect(found.map(({ block: { number }, logIndex }) => [number, logIndex])).toEqual([
      [16, 1],
      [16, 3],
      [17, 0],
    ]);
    expect(asked.filter((method) => method === 'eth_getBlockByNumber')).toHaveLength(2);
  });

  test('of a block that has changed meanwhile is read again later', async () => {
    answers['eth_getBlockByNumber'] = () => block(16, { hash: '0xother' });
    await expect(open().transfers(range, [OWNER])).rejects.toThrow('block 16 has changed while it was read');
    answers['eth_getBlockByNumber'] = () => null;
    await expect(open().transfers(range, [OWNER])).rejects.toThrow('the node has no block 0x10');
  });
});

describe('a query for transfers', () => {
  const filters: { fromBlock: string; toBlock: string; address: string[]; topics: unknown[] }[] = [];
  beforeEach(() => {
    filters.length = 0;
    answers['eth_getLogs'] = ([filter]) => {
      filters.push(filter as (typeof filters)[number]);
      return [];
    };
  });
  const ranges = (): string[] => filters.map(({ fromBlock, toBlock }) => `${Number(fromBlock)}-${Number(toBlock)}`);

  test('names the tokens and at most 500 addresses, and is none without addresses', async () => {
    const address = (i: number): string => `0x${String(i).padStart(40, '0')}`;
    await open().transfers(range, [OWNER]);
    expect(filters).toEqual([
      { fromBlock: '0xa', toBlock: '0x14', address: [TOKEN.toLowerCase()], topics: [TRANSFER, null, [word(OWNER)]] },
    ]);
    filters.length = 0;
    await open().transfers(
      range,
      Array.from({ length: 1_000 }, (_, i) => address(i)),
    );
    expect(filters.map(({ topics }) => (topics[2] as string[]).length)).toEqual([500, 500]);
    filters.length = 0;
    expect(await open().transfers(range, [])).toEqual({ transfers: [], readTo: 20 });
    expect(filters).toEqual([]);
  });

  test('that the node refuses is halved until a single block; no answer and too many calls do not halve it', async () => {
    const widest = (blocks: number, code = -32_005): void => {
      answers['eth_getLogs'] = ([filter]) => {
        const { fromBlock, toBlock } = filter as (typeof filters)[number];
        filters.push(filter as (typeof filters)[number]);
        if (Number(toBlock) - Number(fromBlock) >= blocks) throw new RpcError(code, 'too wide');
        return [];
      };
    };
    widest(3);
    await open().transfers({ from: 10, to: 15 }, [OWNER]);
    expect(ranges()).toEqual(['10-15', '10-12', '13-15']);
    filters.length = 0;
    widest(0);
    await expect(open().transfers({ from: 10, to: 11 }, [OWNER])).rejects.toThrow('too wide');
    expect(ranges()).toEqual(['10-11', '10-10']);
    for (const code of [NO_ANSWER, 429]) {
      filters.length = 0;
      widest(0, code);
      await expect(open().transfers({ from: 10, to: 15 }, [OWNER])).rejects.toThrow('too wide');
      expect(ranges()).toEqual(['10-15']);
    }
  });
});

test('more transfers than a function has room for arguments are all found', async () => {
  const count = 150_000;
  answers['eth_getLogs'] = ([filter]) => {
    const { fromBlock, toBlock } = filter as { fromBlock: string; toBlock: string };
    if (Number(toBlock) - Number(fromBlock) > 5) throw new RpcError(-32_005, 'too many results');
    return Array.from({ length: count / 2 }, () => log());
  };
  expect((await open().transfers(range, [OWNER])).transfers).toHaveLength(count);
});

test('a single block that the node refuses is read address by address', async () => {
  const owners = Array.from({ length: 3 }, (_, i) => `0x${String(i).padStart(40, '0')}`);
  const asked: number[] = [];
  answers['eth_getLogs'] = ([filter]) => {
    const { topics } = filter as { topics: [string, null, string[]] };
    asked.push(topics[2].length);
    if (topics[2].length > 1) throw new RpcError(-32_005, 'more than 10000 results');
    return [];
  };
  expect(await open().transfers({ from: 10, to: 10 }, owners)).toEqual({ transfers: [], readTo: 10 });
  expect(asked).toEqual([3, 2, 1, 1, 1]);
});

describe('the tip of a chain', () => {
  const at = (number: number) => ({ number, hash: `0xh${number}`, ms: 100_000 });

  test('is final by the tag of the chain, which is read before the head', async () => {
    expect(await open().tip()).toEqual({ head: at(20), final: at(12) });
    expect(await open({ finality: 5 }).tip()).toEqual({ head: at(20), final: at(15) });
    expect((await open({ finality: 20 }).tip()).final.number).toBe(0);
    expect((await open({ finality: 21 }).tip()).final.number).toBe(0);
  });

  test('is unknown if the node does not have it, and so is a block', async () => {
    answers['eth_getBlockByNumber'] = () => null;
    await expect(open().tip()).rejects.toThrow('the node has no block finalized');
    expect(await open().block(7)).toBeUndefined();
  });
});

describe('the transfers of a transaction', () => {
  const receipt = (patch: object = {}): void => {
    const logs = [
      log(),
      log({ topics: [TRANSFER, word(SENDER), word(SENDER)], logIndex: '0x3' }),
      log({ topics: [word(1), word(SENDER), word(OWNER)], logIndex: '0x4' }),
      log({ topics: [], logIndex: '0x5' }),
    ];
    answers['eth_getTransactionReceipt'] = () => ({
      status: '0x1',
      blockNumber: '0x10',
      blockHash: '0xh16',
      logs,
      ...patch,
    });
  };

  test('are those to the address, of a transaction that has succeeded', async () => {
    receipt();
    expect(await open().transfersOf('0xt', OWNER)).toEqual([PAID]);
    expect(await open().transfersOf('0xt', OWNER.toLowerCase())).toEqual([PAID]);
    receipt({ status: '0x0' });
    expect(await open().transfersOf('0xt', OWNER)).toEqual([]);
    answers['eth_getTransactionReceipt'] = () => null;
    expect(await open().transfersOf('0xt', OWNER)).toBeUndefined();
  });
});

describe('a node that the watcher must not believe', () => {
  test.each<[string, Record<string, Answer>, string | undefined]>([
    ['is of the right chain', {}, undefined],
    [
      'is of another chain',
      { eth_chainId: () => '0x2105' },
      'the node is of the chain with the id 8453, and ethereum has 1',
    ],
    [
      'has a token with other decimals',
      { eth_call: () => word(18) },
      'the contract of usdc has 18 decimals and must have 6',
    ],
    ['has no token there', { eth_call: () => '0x' }, 'the contract of usdc has no decimals and must have 6'],
    [
      'has a contract without decimals there',
      {
        eth_call: () => {
          throw new RpcError(3, 'execution reverted');
        },
      },
      'the contract of usdc has no decimals and must have 6',
    ],
  ])('%s', async (_what, patch, obstacle) => {
    Object.assign(answers, patch);
    expect(await open().obstacle()).toBe(obstacle);
  });

  test('fails for another reason than its contract, and is asked for no contract that is not configured', async () => {
    for (const error of [new Error('connect ECONNREFUSED'), new RpcError(429, 'too many requests')]) {
      answers['eth_call'] = () => {
        throw error;
      };
      await expect(open().obstacle()).rejects.toThrow(error.message);
    }
    expect(await open({ contracts: {} }).obstacle()).toBeUndefined();
  });
});

test('the oracle answers for an address whether it is sanctioned, and without an oracle nobody says so', async () => {
  const isSanctioned = async (answer: string): Promise<boolean | null> => {
    answers['eth_call'] = ([call]) => {
      expect(call).toEqual({ to: ORACLE, data: `0xdf592f7d${word(SENDER).slice(2)}` });
      return answer;
    };
    return open().isSanctioned(SENDER);
  };
  expect([await isSanctioned(word(0)), await isSanctioned(word(1))]).toEqual([false, true]);
  await expect(isSanctioned('0x')).rejects.toThrow('is its address right?');
  expect(await open({ oracle: null }).isSanctioned(SENDER)).toBeNull();
});

test('a balance is that of the token at the address', async () => {
  answers['eth_call'] = ([call]) => {
    expect(call).toEqual({ to: TOKEN, data: `0x70a08231${word(OWNER).slice(2)}` });
    return word(77);
  };
  expect(await open().balance('usdc', OWNER)).toBe(77n);
});

test('a balance without a number is no answer of the node', async () => {
  answers['eth_call'] = () => '0x';
  await expect(open().balance('usdc', OWNER)).rejects.toThrow(
    new RpcError(NO_ANSWER, 'the contract of usdc gave no balance: is the node up to date?'),
  );
});
