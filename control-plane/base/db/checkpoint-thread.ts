// The thread that copies the write-ahead log of SQLite into the database. Its parent (checkpoints.ts) sends a message for each checkpoint.
import { parentPort, workerData } from 'node:worker_threads';
import Database from 'better-sqlite3';

const database = new Database(String(workerData), { timeout: 5_000 });
database.pragma('synchronous = NORMAL');
database.pragma('wal_autocheckpoint = 0');

parentPort?.on('message', () => {
  database.pragma('wal_checkpoint(PASSIVE)');
  parentPort?.postMessage('done');
});
