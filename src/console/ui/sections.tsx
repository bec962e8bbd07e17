// A page in sections, with the list of them beside it. The one in sight is marked.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Count } from "./tag.tsx";

/** The id of the panel of a section. */
export const idOf = (section: string) => section.toLowerCase().replaceAll(" ", "-");

/** In pixels below the top of the window: of the sections that begin above this line, the last is the current one. */
const lineAt = 140;

type SectionsProps = {
  all: readonly string[];
  /** How much of a section is changed and not saved. */
  changed?(section: string): number;
  children: ComponentChildren;
};

/** Links to the sections of a page; the one in sight is marked. */
export function Sections({ all, changed, children }: SectionsProps) {
  const [current, setCurrent] = useState(all[0]);
  useEffect(() => {
    const look = () => {
      const isAbove = (section: string) =>
        (document.getElementById(idOf(section))?.getBoundingClientRect().top ?? Infinity) < lineAt;
      const isAtEnd = scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 1;
      setCurrent(isAtEnd ? all.at(-1) : (all.findLast(isAbove) ?? all[0]));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, [all.join()]);
  // Scrolls to the section of the address: the browser looked for it before the page was drawn.
  useEffect(() => document.getElementById(location.hash.slice(1))?.scrollIntoView(), []);
  return (
    <div class="settings">
      <nav class="toc" aria-label="Sections">
        {all.map((section) => {
          const count = changed?.(section) ?? 0;
          return (
            <a
              key={section}
              href={`#${idOf(section)}`}
              aria-current={section === current ? "true" : undefined}
            >
              {section}
              {count === 0 ? null : <Count count={count} words="changed" isSoft={true} />}
            </a>
          );
        })}
      </nav>
      <div class="stackd">{children}</div>
    </div>
  );
}
