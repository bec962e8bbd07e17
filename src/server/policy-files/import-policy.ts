// Makes a policy file of a policy of Tailscale or headscale, which never permits more than the original. What has no equal here is
// left out, and named with its line and the reason. Pure. At each `yield` other requests may run (http/heavy-work.ts).

import { stringify } from "yaml";
import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { parseNetwork } from "../../base/ip.ts";
import { readDocument } from "../policy/yaml-document.ts";
import { faulty, parsePolicy, requireShort, type ParsedPolicy } from "../policy/read-policy.ts";
import { runTests, type TestFailure } from "../policy/policy-tests.ts";
import { resolvePolicy } from "../policy/resolve.ts";
import { plainJson } from "./hujson.ts";
import { sections } from "./import-names.ts";
import { Importing, type FoundTest, Original, type Noter, type Rule } from "./import-rules.ts";

export type Note = { line: number; what: string; reason: string };
export type Imported = { policy: string; rules: number; tests: number; notes: Note[] };

/**
 * `overlay`: the networks of the organization that the policy is for; without them, no network is imported as a source. Throws
 * validation_failed for a text that is no policy, and policy_test_failed if one of its own tests fails, unless the test expects
 * what was left out.
 */
export function* importPolicy(text: string, overlay?: readonly string[]): Generator<unknown, Imported> {
  const read = yield* readOriginal(text);
  refuseUnsafe(read);
  const { original, keys, placeOf } = read;
  const notes: Note[] = [];
  /** False once something was left out that permits packets there, or that defines the members of a group. */
  let isComplete = true;
  const note: Noter = (path, what, reason) => {
    const [section = "", ...rest] = path.split(".");
    if (["acls", "grants", "groups"].includes(section)) isComplete = false;
    notes.push({ line: placeOf([keys.get(section) ?? section, ...rest].join(".")).line, what, reason });
  };
  const networks = overlay?.flatMap((each) => parseNetwork(each) ?? []);
  const importing = new Importing(original, networks, note);
  for (const [lower, key] of keys)
    if (!importedKeys.has(lower)) note(lower, key, sections.get(lower) ?? "it has no equal");
  const rules = importing.rules();
  const allTests = importing.tests();
  const groups = importing.groups();
  const render = (tests: readonly FoundTest[]) => renderPolicy(groups, rules, tests);
  const parsed = yield* parseImported(render(allTests), { rules, groups, tests: allTests });
  const failures = yield* failuresOf(parsed);
  // A test that expects access may fail because of what was left out: then it is left out, too.
  const droppedTests = failures.flatMap(({ test }) => {
    const failed = isComplete ? undefined : allTests[test];
    return failed !== undefined && "accept" in failed.test ? [failed] : [];
  });
  if (droppedTests.length < failures.length) throw testsFail(failures, allTests.length);
  for (const { place, text } of droppedTests)
    note(place, text, "it expects what a part without an equal permits, which is named here, too");
  const tests = allTests.filter((test) => !droppedTests.includes(test));
  notes.sort((a, b) => a.line - b.line);
  // One more: the rule for outgoing traffic.
  return { policy: render(tests), rules: rules.length + 1, tests: tests.length, notes };
}

/** The original as it was read. */
type ReadOriginal = {
  original: v.InferOutput<typeof Original>;
  /** The keys of the file as they are written there, by their name in lower case. */
  keys: ReadonlyMap<string, string>;
  /** The value of `defaultSrcPosture`. */
  posture: unknown;
  placeOf: ParsedPolicy["placeOf"];
};

/** Tailscale and headscale read the names of keys in any case. */
function* readOriginal(text: string): Generator<unknown, ReadOriginal> {
  requireShort(text);
  const { value, faults, placeOf } = yield* readDocument(plainJson(text));
  if (faults.length > 0) throw faulty(faults);
  const keys = new Map<string, string>();
  for (const key of typeof value === "object" ? Object.keys(value ?? {}) : []) {
    const lower = key.toLowerCase();
    if (keys.has(lower)) throw faulty([{ ...placeOf(key), message: `${key}: The key is here twice.` }]);
    keys.set(lower, key);
  }
  const given = Object.fromEntries([...keys].map(([lower, key]) => [lower, Object(value)[key]]));
  const parsed = v.safeParse(Original, given, { abortEarly: true });
  if (!parsed.success || typeof value !== "object" || Array.isArray(value)) {
    const issue = parsed.issues?.[0];
    const path = (issue === undefined ? undefined : v.getDotPath(issue)) ?? "";
    throw faulty([{ ...placeOf(path), message: `${path}: this is no policy of Tailscale or headscale.` }]);
  }
  return { original: parsed.output, keys, posture: given["defaultsrcposture"], placeOf };
}

/** Refuses files whose rules would permit more here than in the original. */
function refuseUnsafe({ original: { acls, grants }, keys, posture, placeOf }: ReadOriginal): void {
  const unknownKey = [...keys.keys()].find((key) => !importedKeys.has(key) && !sections.has(key));
  // Without rules everything is permitted there. The unknown key may be `acls`, mistyped.
  if (acls === undefined && grants === undefined && unknownKey !== undefined) {
    const message = `${unknownKey} is no key of Tailscale or headscale, and there are neither acls nor grants.`;
    throw faulty([{ ...placeOf(keys.get(unknownKey) ?? ""), message }]);
  }
  const isPostured = posture !== undefined && posture !== null && JSON.stringify(posture) !== "[]";
  if (isPostured && [...(acls ?? []), ...(grants ?? [])].length > 0) {
    const message =
      "defaultSrcPosture: device posture is not known here, so each rule would permit more than the original. If that is right, remove this key and import again.";
    throw faulty([{ ...placeOf(keys.get("defaultsrcposture") ?? ""), message }]);
  }
}

const importedKeys = new Set(["groups", "hosts", "tagowners", "acls", "grants", "tests"]);

function renderPolicy(
  groups: readonly string[],
  rules: readonly Rule[],
  tests: readonly FoundTest[],
): string {
  const allOutbound = {
    direction: "outbound",
    peer: "any",
    target: "any",
    description: "As in the original",
  };
  return stringify(
    {
      groups: Object.fromEntries([...new Set(groups)].map((name) => [name, {}])),
      rules: [
        allOutbound,
        ...rules.map(({ protocol, ports, peer, target }) => ({
          protocol,
          ...(ports === "any" ? {} : { ports: /^\d+$/.test(ports) ? Number(ports) : ports }),
          peer,
          target,
        })),
      ],
      ...(tests.length === 0 ? {} : { tests: tests.map(({ test }) => test) }),
    },
    { lineWidth: 0 },
  );
}

/** Parses the generated file. It has lines that the user did not write, so an error speaks of the import as a whole. */
function* parseImported(
  policy: string,
  { rules, groups, tests }: Record<"rules" | "groups" | "tests", readonly unknown[]>,
): Generator<unknown, ParsedPolicy> {
  try {
    return yield* parsePolicy(policy);
  } catch (cause) {
    throw new AppError(
      "validation_failed",
      `The import would have ${rules.length + 1} rules, ${groups.length} groups and ${tests.length} tests, which is more than one policy holds.`,
      { hint: "Name ranges of ports, and groups in place of many single ones. Then import again.", cause },
    );
  }
}

/**
 * Runs the tests of the original on the imported policy. No nodes are needed: the tests have stand-ins for each group
 * (policy-tests.ts).
 */
function* failuresOf(parsed: ParsedPolicy): Generator<unknown, TestFailure[]> {
  const { rules = [], tests = [] } = yield* resolvePolicy(parsed, {
    nodes: new Map(),
    groups: new Set(),
    users: new Map(),
    providers: [],
  });
  const stored = rules.map((rule, index) => ({ ...rule, id: index + 1, description: "" }));
  return yield* runTests(tests, { rules: stored, members: [] });
}

function testsFail(failures: readonly TestFailure[], count: number): AppError {
  const sentences = failures.map(({ sentence }) => sentence);
  return new AppError(
    "policy_test_failed",
    `${failures.length} of the ${count} imported tests fail: ${sentences[0] ?? ""}`,
    {
      errors: { tests: sentences },
      hint: "Remove these tests, or correct the rules that they are about, and import again.",
    },
  );
}
