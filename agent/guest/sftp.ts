// The SFTP server inside the container, for scp, sftp, sshfs and editors: one session with the rights of the image's user. It is our
// own, because the image need not have one, and because a server on the host could be led out of the container by a symbolic link.
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
import { codeOf } from '../../shared/errors.ts';

const VERSION = 3;
/** Leaves space for the other fields of the packet. */
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

/** Extensions that we announce, with the versions that OpenSSH expects. */
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
 * Answers requests until the client's EOF or disconnect, then closes all open files. Relative names begin at `home`. Requests are
 * performed one after another, so that nothing is read from a client that does not read its answers. Rejects with SftpError if the
 * bytes are not SFTP.
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
  return { type: ANSWER.status, parts: [STATUS_BY_ERROR[codeOf(error) ?? ''] ?? STATUS.failure, message, ''] };
}

/** Resolves when the socket can take more, or is closed. */
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
