// The plan of a command for --dry-run: files, programs and requests in order, and its text for people. Reads no file, so
// that every command can load it cheaply.

export type Step =
  | {
      step: "file";
      path: string;
      mode: string;
      change: "created" | "changed" | "same" | "removed";
      diff?: string;
    }
  | { step: "run"; argv: readonly string[] }
  | { step: "request"; method: string; url: string };

/** The plan as text. */
export function renderPlan(steps: readonly Step[]): string {
  if (steps.length === 0) return "Nothing would change.\n";
  return steps.map(renderStep).join("");
}

function renderStep(step: Step): string {
  switch (step.step) {
    case "file":
      return `file     ${step.path} (${step.mode}) ${step.change}\n${(step.diff ?? "").replace(/^(?=.)/gm, "         ")}`;
    case "run":
      return `run      ${step.argv.map(quoteWord).join(" ")}\n`;
    case "request":
      return `request  ${step.method} ${step.url}\n`;
  }
}

/** A word quoted for a POSIX shell. */
export function quoteWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** A unified diff with three lines of context; empty if nothing differs. */
export function diff(before: string, after: string): string {
  const a = lines(before);
  const b = lines(after);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (
    tail < a.length - head &&
    tail < b.length - head &&
    a[a.length - 1 - tail] === b[b.length - 1 - tail]
  )
    tail++;
  if (head === a.length && head === b.length) return "";
  const from = Math.max(0, head - 3);
  const aEnd = a.length - tail;
  const bEnd = b.length - tail;
  const context = Math.min(3, tail);
  const body = [
    ...a.slice(from, head).map((line) => ` ${line}`),
    ...a.slice(head, aEnd).map((line) => `-${line}`),
    ...b.slice(head, bEnd).map((line) => `+${line}`),
    ...a.slice(aEnd, aEnd + context).map((line) => ` ${line}`),
  ];
  const range = (start: number, count: number) => `${count === 0 ? start : start + 1},${count}`;
  const hunk = `@@ -${range(from, aEnd - from + context)} +${range(from, bEnd - from + context)} @@`;
  return `${hunk}\n${body.join("\n")}\n`;
}

function lines(text: string): string[] {
  if (text === "") return [];
  return (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n");
}
