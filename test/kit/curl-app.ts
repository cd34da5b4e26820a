// curl at the URL of an application, as a customer uses it.
import { capture } from './capture.ts';

/** The address is passed to curl, because not every system resolves names below localhost. `caFile` is the PEM of the issuing authority. */
export async function curlApp(
  caFile: string,
  url: string,
  ...more: string[]
): Promise<{ status: string; body: string }> {
  const { host } = new URL(url);
  const way = ['--cacert', caFile, '--connect-to', `${host}:127.0.0.1:${new URL(url).port}`];
  const { code, stdout, stderr } = await capture(['curl', '-sS', ...way, '-w', '\\n%{http_code}', ...more, url]);
  if (code !== 0) throw new Error(stderr.toString());
  const [status = '', ...lines] = stdout.toString().split('\n').toReversed();
  return { status, body: lines.toReversed().join('\n') };
}
