// Shows the control plane's errors about rules or their tests.

import { spaced } from "./class-words.ts";

export function Faults({ title, lines }: { title: string; lines: readonly string[] }) {
  return (
    <div class="failure" role="alert">
      <p>{title}:</p>
      <ul>
        {lines.map((line) => (
          <li key={line}>
            <bdi>{spaced(line)}</bdi>
          </li>
        ))}
      </ul>
    </div>
  );
}
