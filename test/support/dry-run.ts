// Compares the plan of --dry-run with what the command then does.

import * as v from "valibot";
import type { Entry, Observed, ObserveOptions, ObservedTree, Snapshot } from "./observed-tree.ts";

/** A command that changes nothing ignores --dry-run, and prints its result: an empty plan. */
const Plan = v.object({
  plan: v.optional(
    v.array(
      v.variant("step", [
        v.object({
          step: v.literal("file"),
          path: v.string(),
          mode: v.string(),
          change: v.string(),
          diff: v.optional(v.string()),
        }),
        v.object({ step: v.literal("run"), argv: v.array(v.string()) }),
        v.object({ step: v.literal("request"), method: v.string(), url: v.string() }),
      ]),
    ),
    [],
  ),
});
type Steps = v.InferOutput<typeof Plan>["plan"];

/** What a command does: path → change and mode, programs, requests. */
type Deeds = { files: Record<string, string>; runs: string[]; requests: string[] };

/** Programs that only answer a question: a plan may leave them out, and making it may need them. */
const queries: readonly RegExp[] = [
  /^\/usr\/bin\/systemctl (--no-ask-password )?(show|is-active|is-enabled)\b/,
  /^\/usr\/bin\/journalctl /,
  /^\/usr\/sbin\/ip -[46] -json (rule|route) show\b/,
  /^\/usr\/bin\/dpkg-query /,
  /^\S+ (-version|version --no-check --json)$/,
  /^\S+ __keyring /,
  /^\/usr\/bin\/unshare .* \/usr\/bin\/true$/,
  /^\/usr\/bin\/true$/,
  /^\S+ -test -config /,
  // How the tests start the guard.
  /^(setsid|sh -c|sed|\S+ self-update --guard) ?/,
  // What the tests put in the place of an engine does while it "runs".
  /^sleep /,
];
const isQuery = (line: string) => queries.some((each) => each.test(line));

/**
 * Short-lived state below /run that every run of check-auth writes anew, such as the time of its last check-in: a plan
 * of it would say the same each time.
 */
const isOfOneBoot = (path: string) => path.startsWith("/run/overlay-agent-health/");

/** Locks are empty files that stay, SQLite has its own; an organization's generations are named by the links to them. */
/** A daemon notes its peers after a while, and perhaps within the moment that is watched. */
const isInternal = (path: string) =>
  isOfOneBoot(path) ||
  /(^|\/)(run\/peers\.json|run\/systemd\/started|lock|[^/]*\.lock|[^/]*\.db-(wal|shm)|current|generations(\/.*)?)$/.test(
    path,
  );

/** A process id, or the time of a run, differs between the plan and the run. */
const steady = (text: string) =>
  text.replace(/\.new\.\d+/g, ".new.PID").replace(/replaced-[\dTZ:.-]+$/, "replaced-TIME");

const real = (path: string) => path.replace(/^\/var\/run\//, "/run/");

function plannedDeeds(stdout: string, before: Snapshot, after: Snapshot): Deeds {
  const { plan } = v.parse(v.pipe(v.string(), v.parseJson(), Plan), stdout);
  const files = new Map<string, string>();
  for (const step of plan) {
    if (step.step !== "file") continue;
    const path = real(step.path).replace(/\/$/, "");
    files.delete(path);
    if (step.change === "same" || isInternal(path)) continue;
    // What the control plane will send is not known yet: it may be what is there.
    const isKnown = step.diff !== undefined || !path.startsWith("/etc/overlay-agent/");
    if (step.change === "changed" && !isKnown && Bun.deepEquals(seen(before, path), seen(after, path)))
      continue;
    // Created for a while: nothing of it remains.
    if (step.change === "removed" && before.get(path) === undefined) continue;
    files.set(steady(path), step.change === "removed" ? "removed" : `${step.change} ${step.mode}`);
  }
  return { files: sorted(files), runs: runsOf(plan), requests: requestsOf(plan) };
}

const runsOf = (plan: Steps) =>
  plan
    .flatMap((step) => (step.step === "run" ? [steady(step.argv.join(" "))] : []))
    .filter((line) => !isQuery(line));

const requestsOf = (plan: Steps) =>
  askedOf(plan.flatMap((step) => (step.step === "request" ? [`${step.method} ${step.url}`] : [])));

/** A service repeats what it asks, and may ask for a sign of life at any time. */
const askedOf = (lines: readonly string[]) =>
  [...new Set(lines)].filter((line) => !line.endsWith("/healthz"));

function sorted(files: ReadonlyMap<string, string>): Record<string, string> {
  return Object.fromEntries([...files].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function runsIn({ started }: Observed): string[] {
  return started.map((argv) => steady(argv.join(" "))).filter((line) => !isQuery(line));
}

/** `planned`: a directory that only holds planned files needs no step of its own, if its mode is 0755. */
function changedFiles(before: Snapshot, after: Snapshot, planned: Deeds["files"]): Deeds["files"] {
  const files = new Map<string, string>();
  for (const path of new Set([...before.paths, ...after.paths])) {
    const [old, now] = [seen(before, path), seen(after, path)];
    if (isInternal(path) || Bun.deepEquals(old, now)) continue;
    if (now === undefined) {
      if (old?.isDirectory !== true) files.set(path, "removed");
      continue;
    }
    const isImplied = now.isDirectory && (old === undefined ? now.mode === "0755" : old.mode === now.mode);
    if (isImplied && planned[path] === undefined) continue;
    const owner = now.owner === (old?.owner ?? "0:0") ? "" : ` ${now.owner}`;
    files.set(steady(path), `${old === undefined ? "created" : "changed"} ${now.mode}${owner}`);
  }
  return sorted(files);
}

/** A file of an organization is a link into its generation: what counts is the file that it leads to. */
function seen(snapshot: Snapshot, path: string): Entry | undefined {
  const entry = snapshot.get(path);
  const target = /^→ (current\/.*)$/.exec(entry?.content ?? "")?.[1];
  if (target === undefined) return entry;
  const directory = path.slice(0, path.lastIndexOf("/"));
  const current = /^→ (.*)$/.exec(snapshot.get(`${directory}/current`)?.content ?? "")?.[1];
  return snapshot.get(`${directory}/${current}/${target.slice("current/".length)}`) ?? entry;
}

/** What must stand in no plan: the given secrets, and the lines of all private files. */
function secretsOf(input: string, after: Snapshot): string[] {
  const files = after.paths
    .flatMap((path) => after.get(path) ?? [])
    .filter(({ mode, content }) => mode === "0600" && !content.startsWith("SQLite"));
  const lines = [input, ...files.map(({ content }) => content)].flatMap((text) => text.split(/["\s]+/));
  return lines.filter(
    (line) => line.length >= 20 && !/^(https?:|-----)/.test(line) && !/PRIVATE|KEY-----/.test(line),
  );
}

type PlanOptions = Omit<ObserveOptions, "meanwhile"> & {
  requests: string[];
  /** Compare what is there while the service runs, not what it leaves. */
  isWatched?: boolean;
};
type Compared = { planned: Deeds; done: Deeds; stderr: string };

/** Plans, checks that planning changed nothing, runs, and returns both for a comparison. */
export async function planAndRun(
  tree: ObservedTree,
  argv: readonly string[],
  options: PlanOptions,
): Promise<Compared> {
  const { requests, until, lastFile, input, isWatched } = options;
  const given = input === undefined ? {} : { input };
  const before = tree.snapshot();
  requests.length = 0;
  const dry = await tree.run([...argv, "--dry-run", "--json"], given);
  if (dry.status !== 0) throw new Error(`The plan ended with ${dry.status}: ${dry.stdout}${dry.stderr}`);
  const untouched = changedFiles(before, tree.snapshot(), {});
  const sentForPlan = requests.splice(0).filter((line) => !line.startsWith("GET "));
  const disturbed = [...Object.entries(untouched).map(String), ...sentForPlan, ...runsIn(dry)];
  if (disturbed.length > 0) throw new Error(`--dry-run itself did this:\n${disturbed.join("\n")}`);
  let after: Snapshot | undefined;
  const meanwhile = isWatched === true ? () => void (after = tree.snapshot()) : () => {};
  const watched =
    until === undefined ? {} : { until, meanwhile, ...(lastFile === undefined ? {} : { lastFile }) };
  const done = await tree.run([...argv, "--json"], { ...given, ...watched });
  if (done.status !== 0) throw new Error(`It ended with ${done.status}: ${done.stdout}${done.stderr}`);
  after ??= tree.snapshot();
  for (const secret of secretsOf(input ?? "", after)) {
    if ((dry.stdout + dry.stderr).includes(secret)) throw new Error(`The plan holds the secret ${secret}`);
  }
  const planned = plannedDeeds(dry.stdout, before, after);
  return {
    planned,
    done: {
      files: changedFiles(before, after, planned.files),
      runs: runsIn(done),
      requests: askedOf(requests.splice(0)),
    },
    stderr: done.stderr,
  };
}
