// The page of the browser console: xterm.js on a connection to the holder. It returns to its terminal after a reload, a lost
// connection, or a restart of anything between page and holder.
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import { openConnection } from './connection.ts';

/** Matches the answers that xterm.js sends by itself to terminal queries of a program: cursor position, features, colours. */
const ANSWER = /^(?:[\]P]|\[[?>=]?[\d;]*\$?[cnRty])/;
const ESCAPE = '\x1b';
/** Shown bytes are acknowledged in such steps: one message per byte would be more than the output itself. */
const SHOWN_BYTES_STEP = 5_000;

function openPage(): void {
  const terminal = new Terminal({
    fontFamily: 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace',
    fontSize: 14,
    cursorBlink: true,
    scrollback: 5_000,
    theme: { background: '#16181d' },
  });
  const line = element('status');
  const say = (state: 'here' | 'away', text: string): void => {
    line.dataset['state'] = state;
    line.textContent = text;
  };
  /** Place up to which the terminal's bytes are shown, and place up to which the holder has been sent that they are shown. */
  let shown = 0;
  let acknowledged = 0;
  /** Bytes before this place are history: terminal queries in them must not be answered again. */
  let pastEnd = 0;
  /** The terminal has ended, or another page shows it. Any key starts a new one, or brings it back to this page. */
  let isOver = false;

  const connection = openConnection({
    size: () => ({ cols: terminal.cols, rows: terminal.rows }),
    begin: ({ place, end, continues }) => {
      // The reset waits for the writes before it.
      if (!continues) terminal.write('', () => terminal.reset());
      shown = acknowledged = place;
      pastEnd = end;
      isOver = false;
      say('here', 'connected');
    },
    show: (bytes, { end, isCurrent }) =>
      terminal.write(bytes, () => {
        if (!isCurrent()) return;
        shown = end;
        if (shown - acknowledged < SHOWN_BYTES_STEP && shown !== connection.received()) return;
        connection.tell({ kind: 'shown', bytes: shown - acknowledged });
        acknowledged = shown;
      }),
    lost: () => say('away', 'the connection is lost; trying again'),
    over: (why) => {
      isOver = true;
      say('away', `${why}; press any key`);
    },
  });
  const type = (text: string, bytes: Uint8Array): void => {
    if (isOver) return connection.connect();
    if (shown >= pastEnd || !isAnswer(text)) connection.type(bytes);
  };

  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(element('terminal'));
  fit.fit();
  terminal.onData((text) => type(text, new TextEncoder().encode(text)));
  // Mouse reports are not text: each character is a byte.
  terminal.onBinary((text) =>
    type(
      text,
      Uint8Array.from(text, (character) => character.charCodeAt(0)),
    ),
  );
  terminal.onResize(({ cols, rows }) => connection.tell({ kind: 'resize', cols, rows }));
  new ResizeObserver(() => fit.fit()).observe(element('terminal'));
  terminal.focus();
  connection.connect();
}

function isAnswer(text: string): boolean {
  return text.startsWith(ESCAPE) && ANSWER.test(text.slice(ESCAPE.length));
}

function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no ${id}`);
  return found;
}

document.title = location.hostname.split('.', 1)[0]?.replace(/^term-/, '') ?? 'Console';
openPage();
