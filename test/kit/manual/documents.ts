// The documents of the project for readers: their pages, fenced blocks, commands, headings and links.
import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '../../..');
/** What a test runs or checks: the commands of these pages, in the order in which a reader would meet them. */
const MANUAL = 'control-plane/docs/*.md';
const OTHERS = ['README.md', '.github/CONTRIBUTING.md', 'CHANGELOG.md'];

export interface Page {
  /** Relative to the project. */
  path: string;
  text: string;
}

export interface Block {
  path: string;
  /** The first line of the block. The first line of the file is 1. */
  line: number;
  language: string;
  text: string;
}

export interface Command {
  path: string;
  line: number;
  /** The command as the page writes it, possibly over several lines, without a note (`  # ...`) at its end. */
  text: string;
}

/** README, contributing guide, changelog and all pages of the manual; the README of the room `docs` is none of them. */
export function readPages(): Page[] {
  const manual = globSync(MANUAL, { cwd: ROOT }).filter((path) => !path.endsWith('/README.md'));
  return [...OTHERS, ...manual.toSorted()].map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }));
}

export function pageOf(pages: readonly Page[], path: string): Page {
  const page = pages.find((each) => each.path === path);
  if (page === undefined) throw new Error(`there is no page ${path}`);
  return page;
}

export function blocksOf({ path, text }: Page): Block[] {
  return [...text.matchAll(/^```(\w*)\n([^]*?)^```$/gm)].map((match) => ({
    path,
    line: text.slice(0, match.index).split('\n').length,
    language: match[1] ?? '',
    text: match[2] ?? '',
  }));
}

/** The commands of all `sh` blocks of a page. A command ends at a line end outside of quotes, continuations and here-documents. */
export function commandsOf(page: Page): Command[] {
  return blocksOf(page)
    .filter(({ language }) => language === 'sh')
    .flatMap((block) => {
      const commands: Command[] = [];
      let open: string[] = [];
      block.text.split('\n').forEach((line, index) => {
        if (open.length === 0 && line.trim() === '') return;
        open.push(line);
        if (isOpen(open.join('\n'))) return;
        commands.push({ path: page.path, line: block.line + 2 + index - open.length, text: withoutNote(open) });
        open = [];
      });
      if (open.length > 0) throw new Error(`${page.path}: a command has no end: ${open.join('\n')}`);
      return commands;
    });
}

/** The blocks of YAML that begin with `# <file>`. */
export function yamlOf(pages: readonly Page[], file: string): Block[] {
  return pages.flatMap(blocksOf).filter(({ text, language }) => language === 'yaml' && text.startsWith(`# ${file}\n`));
}

/** Headings with their level, outside of blocks. */
export function headingsOf({ text }: Page): { depth: number; title: string }[] {
  return [...withoutBlocks(text).matchAll(/^(#+) (.*)$/gm)].map(([, marks = '', title = '']) => ({
    depth: marks.length,
    title: title.replaceAll('`', ''),
  }));
}

/** Addresses of links, outside of blocks. */
export function linksOf({ text }: Page): string[] {
  return [...withoutBlocks(text).matchAll(/\]\(([^)\s]+)\)/g)].map(([, address = '']) => address);
}

function withoutNote(lines: readonly string[]): string {
  return lines.join('\n').replace(/ {2,}# [^\n]*$/, '');
}

function withoutBlocks(text: string): string {
  return text.replaceAll(/^```[^]*?^```$/gm, '');
}

function isOpen(text: string): boolean {
  const end = /<<-?'?(\w+)'?/.exec(text)?.[1];
  if (end !== undefined) return !new RegExp(`\\n${end}$`).test(text);
  return text.endsWith('\\') || (text.split("'").length - 1) % 2 === 1;
}
