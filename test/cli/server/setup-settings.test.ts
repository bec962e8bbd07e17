// The settings file that `agent setup` writes: only what the flags change, and nothing of the administrator's own lines.

import { expect, test } from "bun:test";
import { relative } from "node:path";
import { messageOf, messageWithHint } from "../../../src/base/errors.ts";
import { command } from "../../../src/cli/server/serve.ts";
import { parseSettings, readSettings } from "../../../src/cli/settings-file.ts";
import { readServiceSettings, writeSettings } from "../../../src/cli/server/setup-settings.ts";
import { flagsOf, Values, withSecretFiles } from "../../../src/cli/values.ts";

const path = "control-plane.toml";

/** The file after `agent setup` with these flags on this file. */
async function after(flags: Record<string, string | undefined>, present?: string): Promise<string> {
  const given = Object.entries(flags).flatMap(([flag, value]) =>
    value === undefined ? [] : [[flag, [value]] as const],
  );
  const values = new Values(new Map(given), {
    readStdin: () => Promise.reject(new Error("Nothing is read")),
  });
  const known = present === undefined ? {} : parseSettings(present, path);
  const { changed } = await readServiceSettings(known, values, undefined);
  const text = writeSettings(present, known, changed, path);
  // What it writes, serve reads.
  const { config: _, ...serve } = flagsOf(withSecretFiles(command.args ?? {}));
  expect(() => readSettings(text, path, serve)).not.toThrow();
  return text;
}

const name = { "public-name": "Control.example.org" };

test("the CAs of a private authority are passed on as absolute paths, and go with their kind of TLS", async () => {
  const here = import.meta.path;
  const typed = relative(process.cwd(), here);
  const acme = await after({ ...name, tls: "acme", "acme-ca": typed, "tls-ca": typed });
  expect(parseSettings(acme, path)).toMatchObject({ "acme-ca": here, "tls-ca": here });
  expect(parseSettings(await after({ port: "8443" }, acme), path)).toMatchObject({ "tls-ca": here });
  expect(parseSettings(await after({ tls: "auto" }, acme), path)).not.toHaveProperty("tls-ca");
  const refusal = (flags: Record<string, string>) => after({ ...name, ...flags }).catch(messageOf);
  expect(await refusal({ "tls-ca": here })).toBe("--tls-ca needs --tls acme or files");
  expect(await refusal({ tls: "acme", "tls-ca": "/nowhere.pem" })).toContain("there is no file");
});

test("each kind of TLS has its keys", async () => {
  const auto = await after(name);
  expect(parseSettings(auto, path)).toMatchObject({
    "public-url": "https://control.example.org",
    tls: "auto",
  });
  const acme = await after({ ...name, tls: "acme", "acme-directory": "https://ca.example.org/dir" });
  expect(parseSettings(acme, path)).toMatchObject({
    tls: "acme",
    "acme-directory": "https://ca.example.org/dir",
  });
  const files = await after({ ...name, tls: "files", "tls-cert": "/etc/hosts", "tls-key": "/etc/passwd" });
  expect(parseSettings(files, path)).toMatchObject({ "tls-cert": "/etc/hosts", "tls-key": "/etc/passwd" });
  const off = await after({ ...name, tls: "off" });
  expect(parseSettings(off, path)).toMatchObject({
    listen: "127.0.0.1:8420",
    "trusted-proxy": ["127.0.0.1/32"],
  });
});

test("another kind of TLS removes the keys of the former one", async () => {
  const files = await after({ ...name, tls: "files", "tls-cert": "/etc/hosts", "tls-key": "/etc/passwd" });
  const auto = parseSettings(await after({ tls: "auto" }, files), path);
  expect(Object.keys(auto).sort()).toEqual(["listen", "public-url", "tls"]);
  const acme = await after({ ...name, tls: "acme", "acme-directory": "https://ca.example.org/dir" });
  expect(parseSettings(await after({ tls: "off" }, acme), path)).not.toHaveProperty("acme-directory");
});

test("without a flag nothing changes; with one, only its line", async () => {
  const first = `# mine\n${await after({ ...name, port: "8443" })}\nevent-retention = "90d" # long\n`;
  expect(await after({}, first)).toBe(first);
  expect(await after({ port: "8444" }, first)).toBe(first.replaceAll("8443", "8444"));
  expect(await after({ tls: "acme" }, first)).toBe(first.replace('tls = "auto"', 'tls = "acme"'));
});

test("a list on several lines is not cut: the refusal names the edits, and they let the command pass", async () => {
  const list = 'trusted-proxy = [\n  "127.0.0.1/32",\n]\n';
  const off = (await after({ ...name, tls: "off" })).replace(/trusted-proxy.*\n/, () => list);
  expect(await after({ tls: "off" }, off)).toBe(off);
  const refused = await after({ tls: "acme" }, off).catch(messageWithHint);
  expect(refused).toContain(`Cannot change ${path}: not each setting is one line`);
  expect(refused).toMatch(/write listen = .*, write tls = "acme", remove trusted-proxy\. Then run/);
  expect(parseSettings(await after({ tls: "acme" }, off.replace(list, "")), path)).toMatchObject({
    tls: "acme",
  });
});

test("an address of IPv6 gets brackets, and port 443 is not written", async () => {
  expect(await after({ "public-name": "2001:db8::1" })).toContain('public-url = "https://[2001:db8::1]"');
  expect(await after({ "public-name": "192.0.2.1", port: "9" })).toContain(
    'public-url = "https://192.0.2.1:9"',
  );
});

test.each([
  [{ ...name, tls: "auto", "tls-cert": "/etc/hosts" }, "need --tls files"],
  [{ ...name, tls: "files", "tls-cert": "/etc/hosts" }, "--tls-key FILE"],
  [{ ...name, "acme-directory": "https://x" }, "needs --tls acme"],
  [{ "public-name": "a b" }, "--public-name must be"],
  [{}, "Missing --public-name HOST"],
])("%p is refused", async (flags, sentence) => {
  expect(await after(flags).catch(String)).toContain(sentence);
});
