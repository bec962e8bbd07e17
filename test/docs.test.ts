// The documents say what is so: every sh block is run by a test or has a reason why not, every `agent …` line is one
// that the commands take, every link leads somewhere, and the endpoints are those of the server.

import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import packageJson from "../package.json" with { type: "json" };
import { eventKinds, eventNouns } from "../src/api/events.ts";
import { organizationSettings } from "../src/api/organizations.ts";
import { providerSettings } from "../src/api/providers/providers.ts";
import { leaverSettings, userSettings } from "../src/api/users.ts";
import { webhookSettings } from "../src/api/webhooks/webhooks.ts";
import type { Settings } from "../src/protocol/settings.ts";
import { buildInfo } from "../src/build-info.ts";
import { errorsOf, makeOpenApi } from "../src/server/docs/openapi.ts";
import type { Route } from "../src/server/http/route.ts";
import { allRoutes } from "../src/server/routes.ts";
import { root } from "./support/agent.ts";
import { blockRuns } from "./support/document-blocks.ts";
import {
  blocksOf,
  commandLines,
  documents,
  inlineCode,
  readDocument,
  wrongWith,
  type Block,
} from "./support/documents.ts";
import { expectGolden } from "./support/golden.ts";
import { makeTestServer } from "./support/server.ts";

const shell = documents.flatMap(blocksOf).filter(({ language }) => language === "sh");

test("README.md has at most 130 lines", () => {
  expect(readDocument("README.md").trimEnd().split("\n").length).toBeLessThanOrEqual(130);
});

describe("sh blocks", () => {
  test("each is run by a test, or says why not; none is listed that is gone", () => {
    expect(shell.map(({ key }) => key).sort()).toEqual(Object.keys(blockRuns).sort());
  });

  test("each agent line is one that the command takes", async () => {
    const wrong = [];
    for (const { file, line, text } of shell) {
      for (const [program = "", ...words] of commandLines(text)) {
        const why = program === "agent" ? await wrongWith(words, true) : undefined;
        if (why !== undefined) wrong.push(`${file}:${line}: agent ${words.join(" ")}: ${why}`);
      }
    }
    expect(wrong).toEqual([]);
  });

  test("each is sound shell", () => {
    const wrong = shell.filter(({ text }) => {
      const ran = Bun.spawnSync(["/bin/sh", "-n"], { stdin: Buffer.from(text), stderr: "ignore" });
      return ran.exitCode !== 0;
    });
    expect(wrong.map(({ key }) => key)).toEqual([]);
  });

  test("each request that they send with curl has an endpoint, and a body that is JSON", async () => {
    const endpoints = (await routes()).map(({ method, path }) => ({
      method,
      pattern: new RegExp(`^${path.replace(/:[a-z]+(\{[^/]*\})?/g, "[^/]+")}$`),
    }));
    const sent = shell.flatMap(requestsOf);
    expect(sent.length).toBeGreaterThan(1);
    const known = ({ method, path }: Sent) =>
      endpoints.some((each) => each.method === method && each.pattern.test(path));
    expect(sent.filter((each) => !known(each))).toEqual([]);
    expect(() => sent.forEach(({ body }) => body === undefined || JSON.parse(body))).not.toThrow();
  });
});

test("each agent command in a sentence exists, with its flags", async () => {
  const wrong = [];
  for (const file of documents) {
    for (const code of inlineCode(file).filter((each) => each.startsWith("agent "))) {
      for (const [program = "", ...words] of commandLines(code.replaceAll("…", ""))) {
        const why = program === "agent" ? await wrongWith(words, false) : undefined;
        if (why !== undefined) wrong.push(`${file}: ${code}: ${why}`);
      }
    }
  }
  expect(wrong).toEqual([]);
});

test("each link between documents leads to a file, and to a heading in it", () => {
  const wrong = documents.flatMap((file) =>
    [...readDocument(file).matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target = ""]) => target)
      .filter((target) => !/^https?:/.test(target))
      .filter((target) => !leads(file, target))
      .map((target) => `${file}: ${target}`),
  );
  expect(wrong).toEqual([]);
});

test("each path of the source that is named in ARCHITECTURE.md and CONTRIBUTING.md exists", () => {
  const paths = ["ARCHITECTURE.md", "CONTRIBUTING.md"]
    .flatMap(inlineCode)
    .filter((code) => /^(src|test|docs)\/[\w./-]*$/.test(code));
  expect(paths.length).toBeGreaterThan(30);
  expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
});

test("each file that ARCHITECTURE.md names without its folder exists", () => {
  const present = new Set(
    [...new Bun.Glob("**/*.{ts,tsx}").scanSync(join(root, "src"))].map((path) => basename(path)),
  );
  const names = inlineCode("ARCHITECTURE.md").filter((code) => /^[\w-]+\.tsx?$/.test(code));
  expect(names.length).toBeGreaterThan(10);
  expect(names.filter((name) => !present.has(name))).toEqual([]);
});

describe("the floors of ARCHITECTURE.md", () => {
  const [, floors = ""] = readDocument("ARCHITECTURE.md").split(/^## Floors$/m);
  for (const [, place = "", rows = ""] of floors.matchAll(
    /^\| `(src\/\w+\/)` \| holds \|\n((?:\|.*\n)+)/gm,
  )) {
    test(`are the folders of ${place}: all, and none that is gone`, () => {
      const named = [...rows.matchAll(/^\|([^|]*)\|/gm)].flatMap(([, cell = ""]) =>
        [...cell.matchAll(/`([\w-]+)\/`/g)].map(([, folder = ""]) => folder),
      );
      const present = readdirSync(join(root, place), { withFileTypes: true });
      const folders = present.filter((each) => each.isDirectory()).map(({ name }) => name);
      expect(named.sort()).toEqual(folders.sort());
    });
  }
});

test("ARCHITECTURE.md has at most 12 KB", () => {
  expect(Buffer.byteLength(readDocument("ARCHITECTURE.md"))).toBeLessThanOrEqual(12_288);
});

test("docs/api.md lists the endpoints of the server", async () => {
  const rows = (await routes())
    .filter(({ path }) => path.startsWith("/"))
    .map(({ method, path, access, usersOnly, node, summary, fresh }) => {
      const shown = path.replace(/:([a-z_]+)(\{[^/]*\})?/g, "{$1}");
      const does = summary.replaceAll("|", "\\|");
      const users = usersOnly === true ? ", users" : "";
      return `| \`${method} ${shown}\` | ${access}${users}${node === true ? " + node" : ""} | ${does} | ${asking(fresh)} |`;
    });
  expectTable("docs/api.md", "endpoints", ["endpoint", "access", "does", "fresh factor"], rows);
});

test("docs/api.md lists the types of events, what they are about, and since which version they are recorded", () => {
  const rows = Object.entries(eventKinds).map(([type, { words, subjects, since }]) => {
    const [first = "node"] = subjects;
    const says = words.replace("&", `the ${eventNouns[first]} #`).replace("@", "ACTOR").replace("#", "NAME");
    return `| \`${type}\` | ${subjects.map((subject) => `\`${subject}\``).join(", ")} | ${says} | ${since} |`;
  });
  expectTable("docs/api.md", "events", ["type", "subject", "means", "since"], rows);
});

const settingRows = (settings: Settings) =>
  Object.entries(settings).map(([field, { flag, words, hint, none, help }]) => {
    const values = [hint ?? words?.join("|"), none].filter(Boolean).join("|");
    const shown = `\`--${flag}\` ${values.replaceAll("|", "\\|")}`.trim();
    return `| ${shown} | \`${field}\` | ${help} |`;
  });
const settingColumns = ["flag", "field of the API", "does"];

test("docs/administration.md lists the settings of organizations, providers, webhooks and users", () => {
  const file = "docs/administration.md";
  expectTable(file, "settings", settingColumns, settingRows(organizationSettings));
  expectTable(file, "settings of providers", settingColumns, settingRows(providerSettings));
  const others = { webhook: webhookSettings, "user create": userSettings, "user disable": leaverSettings };
  const rows = Object.entries<Settings>(others).flatMap(([command, settings]) =>
    settingRows(settings).map((row) => `| \`${command}\` ${row}`),
  );
  expectTable(file, "other settings", ["command", ...settingColumns], rows);
});

test("docs/openapi.json is the OpenAPI document, for programs that are generated without a server", async () => {
  const text = JSON.stringify(makeOpenApi(await routes()), undefined, 1);
  expectGolden("../../docs/openapi.json", `${text.replace(buildInfo.version, packageJson.version)}\n`);
});

test("an endpoint declares no error that all of its kind have", async () => {
  const declared = (await routes()).map(
    ({ errors = [], ...kind }) => [kind.name, errors, errorsOf(kind)] as const,
  );
  const again = declared.flatMap(([name, errors, ofKind]) =>
    errors.filter((each) => ofKind.includes(each)).map((each) => `${name} ${each}`),
  );
  expect(declared.length).toBeGreaterThan(100);
  expect(again).toEqual([]);
});

/** The table between the marks `name` and `end of name`. */
function expectTable(file: string, name: string, columns: readonly string[], rows: readonly string[]) {
  const table = [`| ${columns.join(" | ")} |`, `|${"---|".repeat(columns.length)}`, ...rows].join("\n");
  const text = readDocument(file).replace(
    new RegExp(`(<!-- ${name}:[^>]*-->\\n)[^]*(<!-- end of ${name} -->)`),
    (_, begin: string, end: string) => `${begin}\n${table}\n\n${end}`,
  );
  expect(text).toContain(table);
  expectGolden(`../../${file}`, text);
}

/** Where a fresh second factor is asked for. */
function asking(fresh: Route["fresh"]): string {
  if (typeof fresh !== "object") return fresh === true ? "yes" : "";
  const fields = Object.entries(fresh).filter(([, rule]) => rule !== false);
  return fields.map(([name]) => `\`${name}\``).join(", ");
}

async function routes() {
  await using server = await makeTestServer();
  return allRoutes(server.app.services);
}

type Sent = { method: string; path: string; body?: string };

function requestsOf({ text }: Block): Sent[] {
  const lines = text.replace(/\\\n/g, " ").split("\n");
  return lines
    .filter((line) => line.includes("curl ") && line.includes("/api/"))
    .map((line) => {
      const body = /-d '([^']*)'/.exec(line)?.[1];
      return {
        method: /-X ([A-Z]+)/.exec(line)?.[1] ?? "GET",
        path: /https:\/\/[^/]+(\/\S*)/.exec(line)?.[1] ?? "",
        ...(body === undefined ? {} : { body }),
      };
    });
}

function leads(file: string, target: string): boolean {
  const [path = "", heading] = target.split("#");
  const to = path === "" ? file : join(dirname(file), path);
  if (!existsSync(join(root, to))) return false;
  return heading === undefined || headingsOf(to).includes(heading);
}

/** As GitHub names them. */
function headingsOf(file: string): string[] {
  return [...readDocument(file).matchAll(/^#+ (.*)$/gm)].map(([, title = ""]) =>
    title
      .toLowerCase()
      .replace(/[^\w\s-]/g, "")
      .replaceAll(" ", "-"),
  );
}

test("documents name packages of the version that package.json says", () => {
  const named = documents.flatMap((file) =>
    [...readDocument(file).matchAll(/overlay-agent_(\d+\.\d+\.\d+)_/g)].map(([, version = ""]) => version),
  );
  expect(named.length).toBeGreaterThan(0);
  expect(new Set(named)).toEqual(new Set([packageJson.version]));
});
