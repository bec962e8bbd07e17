// Who may import whom, and why. A broken rule is named with the file, so that the reason is read before the rule
// is changed.

import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import {
  importsOf,
  reached,
  sourceFiles,
  sourceRoot,
  withoutComments,
  type Import,
} from "./support/imports.ts";

const files = sourceFiles();
const imports = files.flatMap(importsOf);

/** Area of a file: its folder, or "root" for what everybody shares; main.ts is an area of its own. */
function area(file: string): string {
  if (/^(base|engine|protocol)\//.test(file)) return "root";
  if (file === "main.ts") return "main";
  return file.includes("/") ? (file.split("/")[0] ?? "") : "root";
}

const mayImport: Record<string, { areas: string[]; reason: string }> = {
  main: { areas: ["root", "cli"], reason: "the entry starts the command line and nothing else" },
  cli: {
    areas: ["root", "api", "cli", "node", "daemon", "server", "platform", "release"],
    reason: "the command line hands over to the doer of a command; pki is never asked for without one",
  },
  daemon: {
    areas: ["root", "daemon", "node", "platform"],
    reason: "the daemon does for many what node does once",
  },
  node: {
    areas: ["root", "api", "node", "pki", "release", "platform"],
    reason: "a node never has a control plane inside it: they meet on the wire, in src/protocol",
  },
  server: {
    areas: [
      "root",
      "api",
      "server",
      "pki",
      "platform/file-lock.ts",
      "release/handed-out.ts",
      "release/install-script.ts",
    ],
    reason:
      "a control plane acts on no machine: nothing of node, daemon or platform belongs to it but locks; it hands out a release",
  },
  api: { areas: ["root", "api"], reason: "the contract of the HTTP API knows no side of it" },
  console: {
    areas: ["root", "api", "console"],
    reason: "pages for browsers: they know the API, not the server",
  },
  pki: { areas: ["root", "pki"], reason: "formats and signatures, for both sides" },
  platform: {
    areas: ["root", "platform"],
    reason: "texts and plans for the operating system, for both callers",
  },
  release: {
    areas: ["root", "release", "platform"],
    reason: "downloads are the same for agent and engine",
  },
  root: { areas: ["root", "platform"], reason: "shared files depend on the system alone" },
};

const homes: Record<string, { homes: RegExp; reason: string }> = {
  citty: { homes: /^cli\/help\.ts$/, reason: "usage texts only; its parser lets unknown flags pass" },
  hono: { homes: /^server\//, reason: "HTTP is the control plane's" },
  "@valibot/to-json-schema": { homes: /^server\//, reason: "the OpenAPI document is the control plane's" },
  "swagger-ui-dist": { homes: /^server\//, reason: "the docs pages are the control plane's" },
  redoc: { homes: /^server\//, reason: "the docs pages are the control plane's" },
  jose: {
    homes: /^pki\/(tokens|signed-messages|acme-keys)\.ts$/,
    reason: "algorithms are pinned in one place",
  },
  "@simplewebauthn/server": {
    homes: /^server\/users\/factors\/passkeys\.ts$/,
    reason: "loaded with the first passkey",
  },
  oauth4webapi: {
    homes: /^server\/oidc\/configuration\.ts$/,
    reason: "loaded with the first sign-in by a provider",
  },
  tldts: {
    homes: /^protocol\/name-suffix\.ts$/,
    reason: "the list of public suffixes is a megabyte, loaded on demand",
  },
  "dns-packet": { homes: /^node\/names\//, reason: "the wire format of DNS is spoken by the resolver alone" },
  nodemailer: { homes: /^server\/users\/mail\.ts$/, reason: "loaded with the first e-mail" },
  "@peculiar/x509": { homes: /^pki\/x509\.ts$/, reason: "needs reflect-metadata before it, and costs 14 ms" },
  "reflect-metadata": { homes: /^pki\/x509\.ts$/, reason: "for @peculiar/x509 alone" },
  "@bufbuild/protobuf": { homes: /^pki\//, reason: "overlay certificates, version 1" },
  "ipaddr.js": {
    homes: /^(base|pki|server|node)\//,
    reason: "addresses are read alike on both sides",
  },
  valibot: { homes: /./, reason: "whatever comes from outside is checked where it comes in" },
  "bun:sqlite": {
    homes: /^(server\/store\/sqlite\/\w+|daemon\/state)\.ts$/,
    reason: "each database has one file that knows how it is locked and written",
  },
  "bun:ffi": { homes: /^platform\//, reason: "system calls that Bun does not have differ between systems" },
  preact: { homes: /^console\//, reason: "pages for browsers" },
  "preact/hooks": { homes: /^console\//, reason: "pages for browsers" },
  "@preact/signals": { homes: /^console\//, reason: "pages for browsers" },
  "oxc-minify": { homes: /^server\/console\/bundler\.ts$/, reason: "loaded by the build alone" },
  uqr: { homes: /^cli\/admin\/users\/factor\.ts$/, reason: "QR codes in terminals" },
  yaml: {
    homes: /^server\/(policy|import-export)/,
    reason:
      "policy files and hand-made configurations, with lines and without duplicate keys; the rest has its own",
  },
  ws: {
    homes: /^node\/edge\/tcp-way\.ts$/,
    reason: "a part of the runtime, loaded with the first way by TCP",
  },
  bun: { homes: /./, reason: "the runtime" },
};

describe("imports", () => {
  test("there is something to look at", () => {
    expect(files).toContain("main.ts");
    expect(imports.length).toBeGreaterThan(30);
  });

  for (const [from, { areas, reason }] of Object.entries(mayImport)) {
    test(`${from} imports ${areas.join(", ")} only: ${reason}`, () => {
      const wrong = imports.filter(
        (each) =>
          each.own && area(each.from) === from && !areas.includes(area(each.to)) && !areas.includes(each.to),
      );
      // What the executable holds of the repository, besides sources.
      expect(wrong.filter((each) => !/(package\.json|\/install)$/.test(each.to))).toEqual([]);
    });
  }

  test("every file lies in an area that has rules", () => {
    expect(files.filter((file) => mayImport[area(file)] === undefined)).toEqual([]);
  });

  test("cli files load what is heavy inside run(): a command costs only what it does", () => {
    const wrong = imports.filter(
      (each) =>
        each.own &&
        area(each.from) === "cli" &&
        each.kind === "static" &&
        !["root", "api", "cli"].includes(area(each.to)),
    );
    expect(wrong).toEqual([]);
  });

  test("each library has its home", () => {
    const wrong = imports.filter(
      ({ to, own, from, kind }) =>
        !own && kind !== "type" && !to.startsWith("node:") && homes[to]?.homes.test(from) !== true,
    );
    expect(
      wrong.map(({ from, to }) => `${from} imports ${to}: ${homes[to]?.reason ?? "not a known library"}`),
    ).toEqual([]);
  });

  test("no circle of files, types and lazy imports counted", () => {
    const circles = files.flatMap((file) =>
      importsOf(file)
        .filter((each) => each.own)
        .filter((each) => reached(each.to, (next) => next.own).has(file))
        .map((each) => `${file} > ${each.to} > … > ${file}`),
    );
    expect(circles).toEqual([]);
  });
});

describe("floors", () => {
  /** From the ground up. A file imports its own floor and those below it, never one above: so there is no circle. */
  const floors: Record<string, readonly { name: string; holds: string; isReserved?: boolean }[]> = {
    server: [
      { name: "http", holds: "transport without domain" },
      { name: "store", holds: "tables, records, transactions, locks, the data directory" },
      { name: "for-all.ts", holds: "work for many, of which one may fail" },
      { name: "allocation", holds: "addresses and names: taken, held after their node, free again" },
      { name: "options.ts", holds: "what the process gives to the control plane" },
      { name: "audit", holds: "recording and reading events" },
      { name: "require-role.ts", holds: "the caller's role, checked again in the transaction that writes" },
      {
        name: "retention",
        holds: "what is kept how long: archives of events, and the bytes of an organization",
      },
      { name: "history", holds: "what decided who reaches whom, at any moment" },
      { name: "certificates", holds: "CAs and the one place that signs" },
      { name: "policy", holds: "groups, rules, overrides, and who reaches whom" },
      { name: "organizations", holds: "organizations, their networks and settings" },
      {
        name: "names",
        holds: "names of nodes and aliases, and which of them a node sees",
      },
      { name: "config", holds: "what becomes of all that in a node's files" },
      { name: "users", holds: "users, sessions, members, tokens, and who may do what" },
      { name: "nodes", holds: "registration, check-in, renewal, revocation, restore" },
      { name: "policy-files", holds: "policy as code: plan, apply, confirm, import" },
      { name: "paths", holds: "which tunnels nodes report" },
      { name: "flows", holds: "who talks to whom, as nodes report it, and who could at a moment" },
      { name: "rollout", holds: "what goes through a fleet step by step" },
      { name: "webhooks", holds: "endpoints and deliveries" },
      { name: "alarms", holds: "what is wrong, found and told once" },
      { name: "offboarding", holds: "what ends when a user leaves, is demoted, or a token is revoked" },
      { name: "oidc", holds: "sign-in by providers of identities, and what their groups give" },
      { name: "stream", holds: "events for consoles, as they happen" },
      { name: "metrics", holds: "what Prometheus reads" },
      { name: "backup", holds: "backup, restore, rotation of the secret key" },
      { name: "tls", holds: "listeners and their certificates" },
      { name: "admin.ts", holds: "what admin commands work with" },
      { name: "setup.ts", holds: "what agent setup makes in the data" },
      { name: "import-export", holds: "export and import of plain Nebula files" },
      { name: "console", holds: "the files of the console, embedded" },
      { name: "docs", holds: "the OpenAPI document and its pages" },
      { name: "services.ts", holds: "the composition of all parts" },
      { name: "pipeline.ts", holds: "the checks of a request, in order" },
      { name: "background-loop.ts", holds: "one loop beside requests" },
      { name: "background.ts", holds: "what runs beside requests" },
      { name: "…routes.ts", holds: "the endpoints, each subject's in its folder" },
      { name: "routes.ts", holds: "the table of endpoints" },
      { name: "app.ts", holds: "the HTTP application" },
      { name: "operator.ts", holds: "the same for commands on the data directory" },
      { name: "health.ts", holds: "whether the server of this machine is ready" },
      { name: "serve.ts", holds: "the program" },
    ],
    node: [
      { name: "files", holds: "what lies on this machine" },
      { name: "engine", holds: "the overlay engine: install, control, log" },
      { name: "health", holds: "probes of peers, and whether the overlay carries traffic" },
      {
        name: "routing",
        holds: "networks behind nodes: this machine as a router, and the choice of routers",
      },
      { name: "exit", holds: "the way of this machine's packets to an exit, and being one" },
      { name: "names", holds: "names of nodes for the programs of this machine" },
      { name: "edge", holds: "what an organization needs beside its engine, all the time" },
      { name: "drill", holds: "this node's part in a drill: a dead port, and which peers are lost" },
      { name: "contact", holds: "talking to the control plane and applying what it says" },
      { name: "enroll", holds: "registration, services, leaving" },
      { name: "update", holds: "updates of agent and engine" },
      { name: "doctor", holds: "examination" },
      { name: "demo", holds: "the demo" },
    ],
  };

  for (const [place, list] of Object.entries(floors)) {
    const names = list.map(({ name }) => name);
    // The handlers of a subject stand beside it, and use everything below the application.
    const floorOf = (file: string) =>
      names.indexOf(
        /^server\/[^/]+\/([a-z]+-)*routes\.ts$/.test(file) ? "…routes.ts" : (file.split("/")[1] ?? ""),
      );

    test(`src/${place}: every import leads down or stays: ${names.join(" < ")}`, () => {
      const inside = imports.filter(
        ({ from, to, own }) => own && from.startsWith(`${place}/`) && to.startsWith(`${place}/`),
      );
      expect(inside.filter(({ from, to }) => floorOf(from) < floorOf(to))).toEqual([]);
    });

    test(`src/${place}: every file has a floor, and only reserved floors are empty`, () => {
      const own = files.filter((file) => file.startsWith(`${place}/`));
      expect(own.filter((file) => floorOf(file) === -1)).toEqual([]);
      const empty = names.filter((_, at) => !own.some((file) => floorOf(file) === at));
      expect(empty).toEqual(list.filter(({ isReserved }) => isReserved).map(({ name }) => name));
    });
  }
});

describe("systems", () => {
  /** Who may know of one system alone; everybody else asks for what the machine's own has, or can do. */
  const knowing: Record<string, { importers: RegExp; reason: string }> = {
    "platform/windows/windows.ts": {
      importers: /^platform\//,
      reason: "kernel calls have meanings above them",
    },
    "platform/windows/access.ts": {
      importers: /^platform\//,
      reason: "rights are given by libc.ts and own-directory.ts",
    },
    "platform/launchd.ts": {
      importers: /^node\/enroll\/services\.ts$/,
      reason: "services are planned in one place",
    },
    "platform/windows/task.ts": {
      importers: /^(node\/enroll\/services|cli\/install\/install-tap)\.ts$/,
      reason: "services are planned in one place, and by the command that is named after it",
    },
    "platform/windows/wintun.ts": {
      importers:
        /^(node\/(enroll\/(install-wintun|provision-services)|doctor\/machine)|cli\/install\/install-tap)\.ts$/,
      reason: "a driver is installed by its command or with a registration, and looked for by the doctor",
    },
  };

  for (const [file, { importers, reason }] of Object.entries(knowing)) {
    test(`${file} is known to few: ${reason}`, () => {
      const found = imports.filter((each) => each.own && each.to === file);
      expect(found.length).toBeGreaterThan(0);
      expect(found.filter((each) => !importers.test(each.from)).map((each) => each.from)).toEqual([]);
    });
  }

  test("no file outside platform/ names a system or asks which one this is", () => {
    const allowed = new Set(["brand.ts", "base/system.ts", "server/config/config.ts"]);
    const naming = /process\.platform|\bplatform [!=]==|["'](win32|darwin|linux)["']/;
    const found = files.filter(
      (file) =>
        !file.startsWith("platform/") &&
        !allowed.has(file) &&
        naming.test(withoutComments(readFileSync(join(sourceRoot, file), "utf8"))),
    );
    expect(found).toEqual([]);
  });
});

describe("the way to a command", () => {
  const heavy = [
    "@peculiar/x509",
    "@bufbuild/protobuf",
    "reflect-metadata",
    "hono",
    "jose",
    "citty",
    "bun:sqlite",
    "redoc",
    // Each costs a millisecond or more, of eight.
    "ipaddr.js",
    "node:http",
    "node:https",
    "node:net",
    "node:tls",
    "node:dgram",
    "node:zlib",
  ];
  // What a cli file loads inside run() is on the way; what the doer loads lazily is not, unless it is needed.
  const onTheWay = (each: Import) =>
    each.kind === "static" || (each.kind === "lazy" && area(each.from) === "cli" && area(each.to) !== "cli");

  test("every command starts without a library", () => {
    const ways = reached("main.ts", (each) => each.kind === "static");
    expect([...ways.keys()].filter((to) => !to.endsWith(".ts") && !to.startsWith("node:"))).toEqual([]);
  });

  test("every command starts without the table of the admin commands", () => {
    const ways = reached("main.ts", (each) => each.kind === "static");
    expect(ways.has("cli/commands.ts")).toBe(true);
    // A tenth of the processor time of `version`.
    expect(ways.get("cli/admin/admin.ts")).toBeUndefined();
  });

  test("status loads no module of Node.js if the daemon answers for all organizations", () => {
    for (const file of [
      "cli/node/status.ts",
      "daemon/asking/status-report.ts",
      "daemon/asking/status-text.ts",
    ]) {
      const ways = reached(file, (each) => each.kind === "static");
      // node:fs alone is a fifth of the command.
      expect([...ways.keys()].filter((to) => to.startsWith("node:"))).toEqual([]);
    }
  });

  test("modules that are needed late are loaded by require", () => {
    // process.getBuiltinModule makes a table of all modules first: 2 ms.
    const users = sourceFiles().filter((file) =>
      withoutComments(readFileSync(join(sourceRoot, file), "utf8")).includes("getBuiltinModule"),
    );
    expect(users).toEqual([]);
  });

  for (const command of ["checkin", "check-auth"]) {
    test(`${command} loads what only news need when there are news`, () => {
      const ways = reached(`cli/node/${command}.ts`, onTheWay);
      // Their schemas take half a millisecond each.
      const late = [
        "path-report.ts",
        "node/engine/local-api.ts",
        "node/files/orders.ts",
        "node/files/granted/host-names.ts",
      ];
      expect(late.filter((each) => ways.has(each)).map((each) => ways.get(each))).toEqual([]);
    });
  }

  test("the daemon starts without streams and sockets of Node.js, of which each is a megabyte or two at rest", () => {
    const ways = reached("cli/node/daemon.ts", onTheWay);
    expect(ways.has("daemon/daemon.ts")).toBe(true);
    const large = ["stream", "crypto", "zlib", "net", "tls", "http", "https", "dgram", "child_process"];
    const found = large.map((name) => `node:${name}`).filter((each) => ways.has(each));
    expect(found.map((each) => ways.get(each))).toEqual([]);
  });

  for (const file of [
    "cli/install/version.ts",
    "cli/node/status.ts",
    "cli/node/checkin.ts",
    "cli/node/check-auth.ts",
  ]) {
    const command = /([\w-]+)\.ts$/.exec(file)?.[1];
    test(`${command} runs every minute or in prompts: nothing heavy`, () => {
      expect(existsSync(join(sourceRoot, file))).toBe(true);
      const ways = reached(file, onTheWay);
      // Its streams and classes cost 5 ms of processor time. `version` needs it only to look for a new release.
      if (command !== "version") expect(ways.get("node:crypto")).toBeUndefined();
      expect(heavy.filter((each) => ways.has(each)).map((each) => ways.get(each))).toEqual([]);
    });
  }
});

describe("files", () => {
  const text = (file: string) => readFileSync(join(sourceRoot, file), "utf8");

  test("open with what they are for", () => {
    expect(files.filter((file) => !text(file).startsWith("// "))).toEqual([]);
  });

  test("name in their comments only files that exist", () => {
    const all = files.map((file) => `src/${file}`);
    const named = all.flatMap((file) =>
      [...readFileSync(join(sourceRoot, "..", file), "utf8").matchAll(/^ *(?:\/?\*|\/\/).*$/gm)].flatMap(
        ([comment]) => [...comment.matchAll(/[\w./-]*[\w-]\.tsx?\b/g)].map(([name]) => ({ file, name })),
      ),
    );
    const isThere = ({ name }: { name: string }) =>
      existsSync(join(sourceRoot, "..", name)) || all.some((file) => file.endsWith(`/${name}`));
    expect(named.length).toBeGreaterThan(50);
    expect(named.filter((each) => !isThere(each))).toEqual([]);
  });

  test("are few enough in a folder to be seen at once: at most 25", () => {
    const folders = new Map<string, number>();
    for (const file of files) folders.set(dirname(file), (folders.get(dirname(file)) ?? 0) + 1);
    const full = [...folders].filter(([, count]) => count > 25);
    expect(full).toEqual([]);
  });

  test("are short enough to be read: over 600 lines a file is split", () => {
    expect(files.filter((file) => text(file).split("\n").length > 601)).toEqual([]);
  });

  // sign-seal.ts runs on the machines of signers; certificates/offline-ca.ts stores nothing of it for a revoked node.
  test("server/certificates/issue.ts alone signs for nodes: no way to a certificate goes past its look at revoked ones", () => {
    const signing = files.filter((file) => /\b(signCertificate|issueNodeX509)\(/.test(text(file)));
    expect(signing.filter((file) => !file.startsWith("pki/"))).toEqual([
      "server/certificates/issue.ts",
      "server/config/sign-seal.ts",
    ]);
  });

  test("few edit the policy without its tests: aliases, descriptions of groups, routes and relays", () => {
    const editing = files.filter((file) => /\beditWithoutTests\(/.test(text(file)));
    expect(editing.filter((file) => file !== "server/policy/edit-policy.ts")).toEqual([
      "server/names/aliases.ts",
      "server/nodes/nodes.ts",
      "server/policy/groups.ts",
    ]);
  });

  test("are named in kebab-case, and no folder is a drawer", () => {
    expect(files.filter((file) => !/^([a-z0-9-]+\/)*[a-z0-9-]+(\.d)?\.tsx?$/.test(file))).toEqual([]);
    expect(files.filter((file) => /(^|\/)(utils?|lib|common|helpers?|misc)(\/|\.tsx?$)/.test(file))).toEqual(
      [],
    );
  });

  test("brand.ts alone knows the product's names, so that a vendor changes one file", () => {
    const named = files.filter((file) => file !== "brand.ts" && /overlay-agent/.test(text(file)));
    expect(named).toEqual([]);
  });
});
