// Signs in as a browser does, with the headers that a browser sends with requests of the control plane's own pages.

import { password, type Answer, type RequestOptions, type TestServer } from "./server.ts";

const origin = "https://control.example";
export const ownPage = {
  Origin: origin,
  "Sec-Fetch-Site": "same-origin",
  "Content-Type": "application/json",
};

/** The value of a cookie that an answer sets. */
export function cookieIn({ headers }: Answer, name: string): string | undefined {
  const set = headers.getSetCookie().find((each) => each.startsWith(`${name}=`));
  return set?.slice(name.length + 1).split(";")[0];
}

export type Browser = {
  cookie: string;
  send(method: string, path: string, options?: RequestOptions): Promise<Answer>;
};

export function browserWith(server: TestServer, cookie: string): Browser {
  return {
    cookie,
    send: (method, path, options = {}) =>
      server.send(method, path, {
        ...options,
        headers: { ...ownPage, Cookie: `__Host-session=${cookie}`, ...options.headers },
      }),
  };
}

export function postSession(server: TestServer, body: object, headers: Record<string, string> = {}) {
  return server.send("POST", "/api/session/", { body, headers: { ...ownPage, ...headers } });
}

export async function signInBrowser(
  server: TestServer,
  email = "owner@example.org",
  headers: Record<string, string> = {},
): Promise<Browser> {
  const answer = await postSession(server, { email, password }, headers);
  const cookie = cookieIn(answer, "__Host-session");
  if (cookie === undefined) throw new Error(`No session: ${answer.status} ${answer.text}`);
  return browserWith(server, cookie);
}
