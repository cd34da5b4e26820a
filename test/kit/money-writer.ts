// A program that a test kills: does operations on money, many at a time, and prints the key of each after it is acknowledged.
import { openMoneyAlone, type Operation, perform } from './money-operations.ts';

const WORKERS = 16;

/** The database that the program writes to, and what it does there, in order. */
export interface Order {
  database: string;
  operations: readonly Operation[];
}

async function main({ database, operations }: Order): Promise<void> {
  const money = openMoneyAlone(database);
  const left = operations.values();
  const work = async (): Promise<void> => {
    for (const operation of left) {
      await perform(money, operation);
      process.stdout.write(`done ${operation.key}\n`);
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, work));
  await money.deposits.close();
  await money.core.db.close();
}

const [, , order] = process.argv;
if (import.meta.main && order !== undefined) await main(JSON.parse(order) as Order);
