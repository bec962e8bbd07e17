// Reads the report of `bun test --reporter=junit`. Imports nothing that `bun install` brings.

/** `reasons`: for each failed test, its file, its name and the begin of its message. */
export type Counts = { passed: number; failed: number; skipped: number; reasons: string[] };

/** The report is empty if the process ended before it wrote one. */
export function countsOf(report: string, status: number | null): Counts {
  const summary = /<testsuites[^>]*>/.exec(report)?.[0] ?? "";
  const count = (name: string) => Number(new RegExp(` ${name}="(\\d+)"`).exec(summary)?.[1] ?? 0);
  const [tests, failures, skipped] = [count("tests"), count("failures"), count("skipped")];
  // A file that cannot be loaded, hangs or contains no test is a failure too.
  const failed = Math.max(failures, status === 0 && tests > 0 ? 0 : 1);
  const failure =
    /<testcase name="([^"]*)"[^>]* file="([^"]*)"[^>]*>\s*<failure[^>]*?message="([^"]{0,400})/g;
  const reasons = [...report.matchAll(failure)].map(([, name, file, reason]) =>
    unescaped(`${file}: ${name}: ${reason}`).replace(/\s+/g, " "),
  );
  return { passed: tests - skipped - failures, failed, skipped, reasons };
}

const entities: Record<string, string> = { lt: "<", gt: ">", quot: '"', apos: "'", amp: "&", "#10": "\n" };

function unescaped(text: string): string {
  return text.replace(/&(#?\w+);/g, (whole, name: string) => entities[name] ?? whole);
}
