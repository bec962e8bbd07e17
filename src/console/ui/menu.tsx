// A menu: a button that opens a list of actions below it. Escape, a click elsewhere, or an action closes it.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { IconName } from "./drawings.ts";
import { Icon } from "./icon.tsx";

type MenuProps = {
  label: string;
  icon?: IconName;
  /** Words on the button instead of the icon alone. */
  words?: string;
  isSmall?: boolean | undefined;
  /** With a frame, as a button beside others. */
  isPlain?: boolean | undefined;
  /** Opens upwards, for a button at the bottom. */
  isUp?: boolean;
  children: ComponentChildren;
};

/** What it lists is made when it is opened: a list may have hundreds of menus. */
export function Menu({ label, icon = "more", words, isSmall, isPlain, isUp = false, children }: MenuProps) {
  const [isOpen, setOpen] = useState(false);
  const place = useRef<HTMLDetailsElement>(null);
  const focus = () => place.current?.querySelector("summary")?.focus();
  // Before the next key: Escape closes it however early.
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    place.current?.querySelector(".menu-list")?.scrollIntoView({ block: "nearest" });
    const press = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      if (place.current?.contains(document.activeElement) === true) focus();
      setOpen(false);
    };
    const click = ({ target }: Event) => {
      if (!(target instanceof Node && place.current?.contains(target) === true)) setOpen(false);
    };
    document.addEventListener("click", click);
    document.addEventListener("keydown", press);
    return () => {
      document.removeEventListener("click", click);
      document.removeEventListener("keydown", press);
    };
  }, [isOpen]);
  // The fields of a menu keep it open.
  const isAction = ({ target }: Event) => target instanceof Element && target.closest("a, button") !== null;
  return (
    <details class={isUp ? "menu up" : "menu"} ref={place} open={isOpen}>
      <summary
        class={[
          "button",
          isPlain !== true && "ghost",
          isSmall === true && "small",
          words === undefined && "icon",
        ]
          .filter(Boolean)
          .join(" ")}
        aria-label={words === undefined ? label : undefined}
        title={label}
        onClick={(event: Event) => {
          event.preventDefault();
          setOpen(!isOpen);
        }}
      >
        <Icon name={icon} />
        {words}
      </summary>
      {isOpen ? (
        <div
          class="menu-list"
          // Before the action: a dialog that it opens gives the focus back to what has it now.
          onClickCapture={(event: Event) => void (isAction(event) && focus())}
          onClick={(event: Event) => void (isAction(event) && setOpen(false))}
        >
          {children}
        </div>
      ) : null}
    </details>
  );
}
