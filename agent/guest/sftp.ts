// SFTP inside the container, for scp, sftp, sshfs and editors: one session with the rights of the image's user. Our own server, because
// the image need not have one, and because a server outside of the container could be led out of it by a symbolic link.
import type { Socket } from 'node:net';
import { eachFrame, FRAME, FRAME_BYTES_MAX, sendFrame } from '../wire/frames.ts';
import { handleOperations } from './sftp-handles.ts';
import { locateFrom, nameOperations } from './sftp-names.ts';
import {
  ANSWER,
  type Answer,
  createPacketDecoder,
  encodePacket,
  type Fields,
  type Operations,
  PACKET_BYTES_MAX,
  readFields,
  REQUEST,
  SftpError,
  STATUS,
} from './sftp-wire.ts';

const VERSION = 3;
/** A packet holds more than the bytes of a read or write. */
const READ_BYTES_MAX = PACKET_BYTES_MAX - 1024;
const HANDLES_MAX = 256;

const STATUS_BY_ERROR: Readonly<Record<string, number>> = {
  ENOENT: STATUS.no_such_file,
  ELOOP: STATUS.no_such_file,
  EACCES: STATUS.permission_denied,
  EPERM: STATUS.permission_denied,
  EINVAL: STATUS.bad_message,
  ENAMETOOLONG: STATUS.bad_message,
};

/** By which OpenSSH looks for each extension. */
const EXTENSIONS: Readonly<Record<string, string>> = {
  'posix-rename@openssh.com': '1',
  'statvfs@openssh.com': '2',
  'hardlink@openssh.com': '1',
  'fsync@openssh.com': '1',
  'lsetstat@openssh.com': '1',
  'limits@openssh.com': '1',
  'expand-path@openssh.com': '1',
};

/**
 * Answers until the client says that no more comes, or is gone; what it left open is closed then. Names that are not absolute begin at
 * `home`. Requests are done one after another, so that a client which does not read its answers is not read either.
 * Rejects with SftpError where the bytes are not SFTP.
 */
export async function serveSftp(socket: Socket, home: string): Promise<void> {
  const decode = createPacketDecoder();
  const locate = locateFrom(Buffer.from(home));
  const handles = handleOperations(locate, { handlesMax: HANDLES_MAX, readBytesMax: READ_BYTES_MAX });
  const operations: Operations = {
    ...handles.operations,
    ...nameOperations(locate, Buffer.from(home)),
    'limits@openssh.com': limits,
  };
  let greeted = false;

  const answer = async (fields: Fields): Promise<Buffer> => {
    const type = fields.uint8();
    if (!greeted) {
      if (type !== REQUEST.init) throw new SftpError(STATUS.bad_message, 'the first packet must be SSH_FXP_INIT');
      greeted = true;
      return encodePacket(ANSWER.version, [VERSION, ...Object.entries(EXTENSIONS).flat()]);
    }
    const id = fields.uint32();
    const { type: kind, parts } = await perform(operations, type, fields).catch(refusal);
    return encodePacket(kind, [id, ...parts]);
  };

  const ended = Promise.withResolvers<void>();
  const frames = eachFrame(socket, FRAME_BYTES_MAX, async ({ type, payload }) => {
    if (type === FRAME.eof) ended.resolve();
    if (type !== FRAME.data) return;
    for (const packet of decode(payload)) await sendWhole(socket, await answer(readFields(packet)));
  });
  try {
    await Promise.race([frames, ended.promise]);
  } finally {
    await handles.close();
  }
}

async function perform(operations: Operations, type: number, fields: Fields): Promise<Answer> {
  const extension = type === REQUEST.extended ? fields.bytes().toString() : undefined;
  const isKnown = extension === undefined || Object.hasOwn(EXTENSIONS, extension);
  const operation = isKnown ? operations[extension ?? type] : undefined;
  if (operation === undefined) throw new SftpError(STATUS.unsupported, 'this server does not know the request');
  return operation(fields);
}

async function limits(): Promise<Answer> {
  const parts = [PACKET_BYTES_MAX, READ_BYTES_MAX, READ_BYTES_MAX, HANDLES_MAX].map(BigInt);
  return { type: ANSWER.extended, parts };
}

function refusal(error: unknown): Answer {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof SftpError) return { type: ANSWER.status, parts: [error.status, message, ''] };
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return { type: ANSWER.status, parts: [STATUS_BY_ERROR[code] ?? STATUS.failure, message, ''] };
}

/** Resolves when the socket takes more, or is gone: then there is nobody to wait for. */
function sendWhole(socket: Socket, bytes: Buffer): Promise<void> {
  return new Promise((resolve) => {
    if (socket.destroyed) return resolve();
    const done = (): void => {
      socket.off('close', done);
      resolve();
    };
    socket.once('close', done);
    sendFrame(socket, FRAME.data, bytes, done);
  });
}
