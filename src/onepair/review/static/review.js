// The pages work without this file: forms, links and native elements do. It makes them quick: the next page replaces
// this one in place, keys press buttons, lists open in a dialog, heat maps appear under the pointer.

const dialog = document.getElementById("dialog");
const spoken = document.getElementById("status");
let busy = false;
let waiting = []; // keys that were pressed meanwhile, one by one, for the pages that come

// Pages

async function load(address, options) {
  const response = await fetch(address, options).catch(() => {
    throw new Error(document.body.dataset.lost);
  });
  const text = await response.text();
  const loaded = new DOMParser().parseFromString(text, "text/html");
  if (!loaded.getElementById("page")) throw new Error(text);
  return loaded;
}

async function visit(address, options) {
  if (busy) return;
  busy = true;
  try {
    const loaded = await load(address, options);
    const page = loaded.getElementById("page");
    dialog.close(); // gives the focus back to what opened it
    const focused = document.activeElement.id;
    document.getElementById("page").replaceWith(page);
    document.title = loaded.title;
    if (page.dataset.here !== location.pathname + location.search) history.pushState(null, "", page.dataset.here);
    document.getElementById(focused)?.focus();
    const news = [page.querySelector("#said"), page.querySelector("h1")];
    spoken.textContent = news.map((element) => element?.textContent ?? "").join(". ");
    arrive();
    if (page.querySelector(".notice")) waiting = []; // what it says comes first
  } catch (error) {
    waiting = [];
    complain(error.message);
  } finally {
    busy = false;
    while (waiting.length && !busy) press(waiting.shift());
  }
}

function complain(sentence) {
  dialog.close();
  document.querySelector("main .notice")?.remove();
  const notice = document.createElement("p");
  notice.className = "notice";
  notice.setAttribute("role", "alert");
  notice.textContent = sentence;
  document.querySelector("main").prepend(notice);
}

function arrive() {
  const ahead = document.getElementById("page").dataset.ahead;
  for (const address of ahead.split(" ").filter(Boolean)) new Image().src = address;
  showMap();
  countMarked();
  countTicked();
  showKeys();
  watch();
}

// A training that is under way is looked at again and again; keys, focus and dialogs are left alone

let watching;

function watch() {
  clearTimeout(watching);
  if (document.querySelector("[data-running]")) watching = setTimeout(lookAgain, 2000);
}

async function lookAgain() {
  if (!busy && !dialog.open) {
    const loaded = await load(location.href).catch(() => null); // gone for now, perhaps
    const running = document.querySelector("[data-running]");
    if (loaded && running && !busy && !dialog.open) {
      const focused = document.activeElement.id;
      document.getElementById("page").replaceWith(loaded.getElementById("page"));
      document.getElementById(focused)?.focus();
    }
  }
  watch();
}

addEventListener("popstate", () => visit(location.href));

document.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  if (isUndecided(form)) return;
  const fields = new URLSearchParams(new FormData(form, event.submitter));
  if (form.method === "get") visit(`${form.action}?${new URLSearchParams([...fields].filter(([, value]) => value))}`);
  else visit(form.action, { method: "POST", body: fields });
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || "download" in link.attributes || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if ("dialog" in link.dataset) openDialog(link.href);
  else visit(link.href);
});

// Lists and help in a dialog

async function openDialog(address) {
  try {
    document.getElementById("content").replaceChildren(...(await load(address)).querySelector("main").children);
  } catch (error) {
    complain(error.message);
    return;
  }
  dialog.showModal();
  dialog.querySelector(".search, #name")?.focus();
  showKeys();
  choose(0);
}

dialog.addEventListener("click", (event) => {
  if (event.target === dialog || event.target.id === "close") dialog.close(); // the dialog itself is its backdrop
});

const entries = () => [...dialog.querySelectorAll("li:not([hidden])")];

function choose(index) {
  const shown = entries();
  dialog.querySelector(".chosen")?.classList.remove("chosen");
  const chosen = shown[Math.max(0, Math.min(index, shown.length - 1))];
  chosen?.classList.add("chosen");
  chosen?.scrollIntoView({ block: "nearest" });
}

document.addEventListener("change", (event) => {
  if ("submit" in event.target.dataset) event.target.form.requestSubmit();
});

document.addEventListener("input", (event) => {
  if (event.target.id === "single-keys") localStorage.setItem("keys", event.target.checked ? "on" : "off");
  if (event.target.name === "marked" || event.target.name === "unsure") countMarked();
  if (event.target.name === "ticked") countTicked();
  if (event.target.id === "filter") return filter(event.target.value);
  if (!event.target.matches(".search")) return;
  const wanted = event.target.value.trim().toLowerCase();
  const name = (entry) => entry.dataset.name.toLowerCase();
  for (const entry of document.querySelectorAll(".list li")) entry.hidden = !name(entry).includes(wanted);
  document.querySelector(".list .nothing").hidden = Boolean(document.querySelector(".list li:not([hidden])"));
  const added = document.getElementById("new-class");
  if (added) added.value = event.target.value; // what is not in the list can be added to it
  choose(entries().findIndex((entry) => name(entry).startsWith(wanted)));
});

dialog.addEventListener("keydown", (event) => {
  if (!event.target.matches(".search")) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    choose(entries().indexOf(dialog.querySelector(".chosen")) + step);
  } else if (event.key === "Enter") {
    event.preventDefault();
    dialog.querySelector(entries().length ? ".chosen .name" : "#add-class").click();
  }
});

// Keys: each presses the element that names it in aria-keyshortcuts

const usesKeys = () => localStorage.getItem("keys") !== "off";

function showKeys() {
  const box = document.getElementById("single-keys");
  if (box) box.checked = usesKeys();
}

addEventListener("keydown", (event) => {
  if (dialog.open || event.repeat || event.altKey || !usesKeys()) return;
  const control = event.ctrlKey || event.metaKey;
  if (!control && (moveInPhoto(event) || moveInAudit(event) || moveInGrid(event))) return;
  const typing = event.target.matches("input:not([type=checkbox])") && !event.key.startsWith("Page");
  if (!control && typing) return;
  if (event.key === "Enter" && !control && event.target.matches("a, button")) return; // it presses what has the focus
  const key = (control ? "Control+" : "") + (event.key.length === 1 ? event.key.toUpperCase() : event.key);
  if (busy && "YNSU".includes(key)) waiting.push(key);
  else if (press(key)) event.preventDefault();
});

function press(key) {
  const pressed = [...document.querySelectorAll("[aria-keyshortcuts]")].find((each) => each.ariaKeyShortcuts === key);
  pressed?.click();
  return Boolean(pressed);
}

function moveInGrid(event) {
  const boxes = [...document.querySelectorAll(".thumbnails [name=marked]")];
  const columns = new Set(boxes.map((box) => box.getBoundingClientRect().left)).size;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  const focused = document.activeElement.closest(".thumbnails li");
  if (focused && event.key.toLowerCase() === "s") {
    event.preventDefault();
    focused.querySelector("[name=unsure]").click();
    return true;
  }
  if (!boxes.length || !step) return false;
  event.preventDefault();
  const now = boxes.indexOf(document.activeElement);
  boxes[now < 0 ? 0 : Math.max(0, Math.min(now + step, boxes.length - 1))].focus();
  return true;
}

function countMarked() {
  const words = document.getElementById("count");
  if (!words) return;
  const { total, rest, marked } = words.dataset;
  const unsure = document.querySelectorAll("[name=unsure]:checked").length;
  const count = document.querySelectorAll("li:not(:has([name=unsure]:checked)) [name=marked]:checked").length;
  const say = (sentence, number) => number && sentence.replace("{n}", number);
  const parts = [say(rest, total - count - unsure), say(marked, count), say(words.dataset.unsure, unsure)];
  words.textContent = count || unsure ? parts.filter(Boolean).join(", ") : say(words.dataset.all, total);
}

// An audit: letters find a label by its name, Enter ticks it, arrows move among all of them

const shownToggles = () => [...document.querySelectorAll(".toggles li:not([hidden]) input")];

function filter(text) {
  const wanted = text.trim().toLowerCase();
  const entries = [...document.querySelectorAll(".toggles li")];
  const name = (entry) => entry.dataset.name.toLowerCase();
  for (const entry of entries) entry.hidden = !name(entry).includes(wanted);
  for (const list of document.querySelectorAll(".toggles ul")) {
    const empty = !list.querySelector("li:not([hidden])");
    list.hidden = empty;
    if (list.previousElementSibling?.matches("h2")) list.previousElementSibling.hidden = empty;
  }
  document.getElementById("found").hidden = entries.some((entry) => !entry.hidden);
  document.querySelector(".toggle.chosen")?.classList.remove("chosen");
  const shown = entries.filter((entry) => !entry.hidden);
  const chosen = wanted && (shown.find((entry) => name(entry).startsWith(wanted)) ?? shown[0]);
  if (chosen) chosen.querySelector(".toggle").classList.add("chosen");
}

function tick(box) {
  box.click();
  spoken.textContent = `${box.value} ${document.body.dataset[box.checked ? "ticked" : "unticked"]}`;
}

function moveInAudit(event) {
  const search = document.getElementById("filter");
  if (!search) return false;
  const boxes = shownToggles();
  const here = boxes.indexOf(document.activeElement);
  if (event.key === "Escape" && search.value) {
    search.value = "";
    filter("");
  } else if (event.key === "Enter" && event.target === search) {
    const chosen = document.querySelector(".toggle.chosen input");
    if (chosen) tick(chosen);
    search.value = "";
    filter("");
  } else if (event.key === "Enter" && here >= 0) {
    tick(boxes[here]);
  } else if (/^[\p{L}\p{N}]$/u.test(event.key) && event.target !== search) {
    search.focus(); // and the letter goes there
    return true;
  } else if (event.key.startsWith("Arrow") && !(event.target === search && /Left|Right/.test(event.key))) {
    neighbour(boxes, here, event.key)?.focus();
  } else {
    return false;
  }
  event.preventDefault();
  return true;
}

function neighbour(boxes, here, key) {
  if (here < 0) return boxes[0];
  if (key === "ArrowRight" || key === "ArrowLeft") return boxes[here + (key === "ArrowRight" ? 1 : -1)];
  const middle = (box) => {
    const { left, top, width, height } = box.getBoundingClientRect();
    return [left + width / 2, top + height / 2];
  };
  const [x, y] = middle(boxes[here]);
  const down = key === "ArrowDown" ? 1 : -1;
  const beyond = boxes.map((box) => [box, ...middle(box)]).filter(([, , top]) => down * (top - y) > 4);
  const line = Math.min(...beyond.map(([, , top]) => down * (top - y)));
  const near = beyond.filter(([, , top]) => down * (top - y) < line + 4);
  return near.sort(([, a], [, b]) => Math.abs(a - x) - Math.abs(b - x))[0]?.[0];
}

function countTicked() {
  const words = document.getElementById("count-ticked");
  if (!words) return;
  const count = document.querySelectorAll("[name=ticked]:checked").length;
  const { none, one, many } = words.dataset;
  words.textContent = count > 1 ? many.replace("{n}", count) : count ? one : none;
}

// What a model expects and nobody has ticked is pointed at once before an image is complete without it
function isUndecided(form) {
  const notice = form.querySelector("#undecided");
  const expected = form.querySelector(".predicted input:not(:checked)");
  if (!notice?.hidden || !expected || form.querySelector("[name=seen]").value !== "0") return false;
  notice.hidden = false;
  expected.focus();
  return true;
}

// Zoom: the photo under the pointer, or moved by the arrows

const STEPS = { ArrowLeft: [-20, 0], ArrowRight: [20, 0], ArrowUp: [0, -20], ArrowDown: [0, 20] };
const within = (share) => Math.max(0, Math.min(100, share));
let centre = [50, 50];

function look(x, y) {
  centre = [within(x), within(y)];
  for (const layer of document.querySelectorAll(".photo, .map")) layer.style.transformOrigin = `${centre[0]}% ${centre[1]}%`;
}

function lookAt(event) {
  const { left, top, width, height } = document.querySelector(".stage").getBoundingClientRect();
  look((100 * (event.clientX - left)) / width, (100 * (event.clientY - top)) / height);
}

document.addEventListener("click", (event) => {
  const photo = event.target.matches(".photo");
  if (!photo && !event.target.closest("#zoom")) return;
  const zoomed = document.querySelector(".stage").classList.toggle("zoomed");
  document.getElementById("zoom").setAttribute("aria-pressed", zoomed);
  if (photo) lookAt(event);
  else look(50, 50);
});

document.addEventListener("pointermove", (event) => {
  if (event.target.closest?.(".zoomed")) lookAt(event);
});

function moveInPhoto(event) {
  const step = STEPS[event.key];
  if (!step || !document.querySelector(".zoomed")) return false;
  event.preventDefault();
  look(centre[0] + step[0], centre[1] + step[1]);
  return true;
}

// Swipe: on a screen that is touched, the photo to the right is yes, to the left no

const FAR = 90; // pixels
let touch = null;

document.addEventListener("pointerdown", (event) => {
  const photo = event.target.closest?.(".stage:not(.zoomed) .photo");
  const asks = document.querySelector(".answers #yes");
  touch = photo && asks && event.pointerType === "touch" ? { photo, x: event.clientX, y: event.clientY } : null;
});

document.addEventListener("pointermove", (event) => {
  if (!touch) return;
  const [x, y] = [event.clientX - touch.x, event.clientY - touch.y];
  const shift = Math.abs(x) > 1.5 * Math.abs(y) ? x : 0;
  touch.answer = Math.abs(shift) < FAR ? "" : shift > 0 ? "yes" : "no";
  touch.photo.style.transform = shift ? `translateX(${shift}px) rotate(${shift / 40}deg)` : "";
  touch.photo.closest(".stage").dataset.swipe = touch.answer;
});

for (const kind of ["pointerup", "pointercancel"]) {
  document.addEventListener(kind, () => {
    if (!touch) return;
    const { photo, answer } = touch;
    touch = null;
    photo.style.transform = "";
    delete photo.closest(".stage").dataset.swipe;
    if (answer && kind === "pointerup") document.getElementById(answer).click();
  });
}

// Heat maps: under the pointer or the focus, or for as long as the button is pressed

function showMap(address) {
  const button = document.getElementById("where");
  if (!button) return;
  const pressed = localStorage.getItem("map") === "on";
  button.setAttribute("aria-pressed", pressed);
  const image = document.querySelector(".map image");
  image.setAttribute("href", address ?? button.dataset.map);
  document.querySelector(".stage").classList.toggle("mapped", pressed || Boolean(address));
}

for (const kind of ["mouseover", "focusin"]) {
  document.addEventListener(kind, (event) => showMap(event.target.closest?.("[data-map]")?.dataset.map));
}

document.addEventListener("click", (event) => {
  if (!event.target.closest("#where")) return;
  localStorage.setItem("map", localStorage.getItem("map") === "on" ? "off" : "on");
  showMap();
});

arrive();
