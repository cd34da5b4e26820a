// The error of every failed outbound request, with a code for callers.

export type OutboundErrorCode = 'blocked_address' | 'dns' | 'connect' | 'tls' | 'timeout' | 'protocol';

/** `remoteAddress` is null if there was no connection. The owner of the URL may read the message. */
export class OutboundError extends Error {
  readonly code: OutboundErrorCode;
  readonly remoteAddress: string | null;

  constructor(
    code: OutboundErrorCode,
    message: string,
    options: { remoteAddress?: string | null; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = 'OutboundError';
    this.code = code;
    this.remoteAddress = options.remoteAddress ?? null;
  }
}
