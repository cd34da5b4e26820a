// The one error of an attempt to call somebody, with a code that callers tell apart.

export type OutboundErrorCode = 'blocked_address' | 'dns' | 'connect' | 'tls' | 'timeout' | 'protocol';

/** `remoteAddress` is null where no connection was made. The message is a rule or a reason that the owner of the URL may read. */
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
