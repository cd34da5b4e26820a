// /llms.txt: the start page for programs that read the manual. It says what the service is, and links the pages as Markdown.

export interface SourcePage {
  name: string;
  title: string;
  source: string;
}

/** The text of /llms.txt: each page with a link, and with the sentence about it from the page `index`. */
export function llmsText(pages: readonly SourcePage[]): string {
  const first = pages.find(({ name }) => name === 'index')?.source ?? '';
  const about = new Map(
    first.split('\n').flatMap((line) => {
      const [, name, words] = /^- \[[^\]]+\]\(([a-z-]+)\.md\): ([^.]+)\./.exec(line) ?? [];
      return name === undefined ? [] : [[name, words]];
    }),
  );
  const lines = pages.map(({ name, title }) => {
    const words = about.get(name);
    return `- [${title}](/docs/${name}.md)${words === undefined ? '' : `: ${words}`}`;
  });
  return `# GPU rental and inference service

> Rent GPUs by the second, call models with clients of the OpenAI API, and offer machines. Everything is an HTTP API below /v1 with JSON and API keys
> (Authorization: Bearer). The command line svc does what the API does.

## API

- [OpenAPI document](/v1/openapi.json): every path, schema, scope and error
- [API reference](/docs/api): the same for people

## Manual, as Markdown

${lines.join('\n')}
`;
}
