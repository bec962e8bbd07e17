// One step of a --dry-run plan: what writing a file would change. It changes nothing.

import { hasMode, readTextIfThere } from "./files.ts";
import { diff, type Step } from "./plan.ts";

/** What writing `content` to `path` would change. With `secret`, the plan holds no content. */
export function planFile(
  path: string,
  content: string,
  mode: number,
  options: { secret?: boolean } = {},
): Step {
  const before = readTextIfThere(path);
  const change =
    before === undefined ? "created" : before === content && hasMode(path, mode) ? "same" : "changed";
  const shown = change === "same" || options.secret ? {} : { diff: diff(before ?? "", content) };
  return { step: "file", path, mode: `0${mode.toString(8)}`, change, ...shown };
}
