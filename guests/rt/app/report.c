/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "report.h"

#include "FreeRTOS.h"
#include "burner.h"
#include "console.h"
#include "duechain.h"
#include "periodic.h"
#include "psci.h"
#include "smccc.h"
#include "task.h"
#include "tasks.h"
#include "timer.h"

#define PER_MILLE 999 /* the quantile in the report: 99.9 % */

/* Histogram rows, and the length of the longest bar in characters. */
#define ROWS_MAX 20
#define BAR_MAX 50

/* Rows of the histogram for programs. */
#define PLOT_ROWS_MAX 512
#define PLOT_ROWS_PER_LINE 8

static StaticTask_t task_memory;
static StackType_t stack[configMINIMAL_STACK_SIZE];
static TaskHandle_t task;
static const struct parameters *parameters;

static uint64_t ns(uint64_t ticks) {
    return ticks_to_ns(ticks, timer_frequency());
}

/* Prints a time in the largest unit in which it is a whole number. */
static void print_time(uint64_t time_ns) {
    if (time_ns % 1000000000 == 0) {
        console_printf("%lu s", time_ns / 1000000000);
    } else if (time_ns % 1000000 == 0) {
        console_printf("%lu ms", time_ns / 1000000);
    } else if (time_ns % 1000 == 0) {
        console_printf("%lu us", time_ns / 1000);
    } else {
        console_printf("%lu ns", time_ns);
    }
}

void report_banner(const struct parameters *p, uint64_t entry_level, const char *tree_origin,
                   uint64_t tree_address) {
    console_printf("\nSpumone real-time guest on FreeRTOS %s\n", tskKERNEL_VERSION_NUMBER);
    console_printf("entered at EL%lu, PSCI by %s, counter %lu Hz, device tree %s", entry_level,
                   smccc_conduit_name(), timer_frequency(), tree_origin);
    if (tree_address != 0) {
        console_printf(" 0x%lx", tree_address);
    }
    console_printf("\nperiod ");
    print_time(p->period_ns);
    if (p->load_percent != 0) {
        console_printf(", load %lu %% of each ", (uint64_t)p->load_percent);
        print_time(p->burst_ns);
    } else {
        console_printf(", no load");
    }
    if (p->periods != 0) {
        console_printf(", %lu periods", p->periods);
    } else {
        console_printf(", for ever");
    }
    if (p->warmup != 0) {
        console_printf(" after %lu that do not count", p->warmup);
    }
    console_printf("\n");
}

static void print_row(const char *name, uint64_t ticks) {
    console_printf("  %-10s %10lu %12lu\n", name, ticks, ns(ticks));
}

/* The next of 1, 2, 5, 10, 20, 50, … */
static uint64_t next_round_number(uint64_t number) {
    uint64_t leading = number;

    while (leading >= 10) {
        leading /= 10;
    }
    return leading == 2 ? number / 2 * 5 : number * 2;
}

static void print_bar(uint64_t count, uint64_t largest) {
    uint64_t length = largest > 0 ? count * BAR_MAX / largest : 0;

    if (count > 0 && length == 0) {
        length = 1;
    }
    console_printf(" %10lu ", count);
    for (uint64_t i = 0; i < length; i++) {
        console_printf("#");
    }
    console_printf("\n");
}

/*
 * Rows of equal width from the minimum up to the 99.9 % quantile; larger values are in one last row.
 * The width is a whole number of ticks, otherwise the rows would span unequal numbers of ticks and show
 * a false pattern.
 */
static void print_histogram(const struct histogram *histogram, uint64_t min, uint64_t upper) {
    uint64_t rows[ROWS_MAX] = {0};
    uint64_t above = 0;
    uint64_t largest = 0;
    uint64_t width = 1;

    while ((upper - min / width * width) / width >= ROWS_MAX || width <= upper / HISTOGRAM_PER_DOUBLING) {
        width = next_round_number(width);
    }
    uint64_t base = min / width * width;
    uint64_t count = (upper - base) / width + 1;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (histogram->buckets[i] == 0) {
            continue;
        }
        uint64_t start = histogram_bucket_start(i);
        uint64_t row = start > base ? (start - base) / width : 0;
        uint64_t *cell = row < count ? &rows[row] : &above;
        *cell += histogram->buckets[i];
        if (*cell > largest) {
            largest = *cell;
        }
    }
    console_printf("histogram, rows of %lu ticks (%lu ns)\n", width, ns(width));
    for (uint64_t row = 0; row < count; row++) {
        console_printf("  from %10lu ns", ns(base + row * width));
        print_bar(rows[row], largest);
    }
    if (above > 0) {
        console_printf("  above          ");
        print_bar(above, largest);
    }
}

/*
 * The histogram for programs: rows of equal width that are not empty, START:COUNT with START in ns. The
 * width is as small as PLOT_ROWS_MAX rows allow. Short lines, as those of guests under a hypervisor may be cut.
 */
static void print_plot(const struct histogram *histogram) {
    uint64_t width = histogram_row_width(histogram, PLOT_ROWS_MAX);
    uint64_t row = 0;
    uint64_t count = 0;
    unsigned printed = 0;

    for (size_t i = 0; i <= HISTOGRAM_BUCKETS; i++) {
        uint64_t next = histogram_bucket_start(i) / width;

        if (next != row || i == HISTOGRAM_BUCKETS) {
            if (count > 0) {
                if (printed == 0) {
                    console_printf("rt-histogram width_ns=%lu", ns(width));
                } else if (printed % PLOT_ROWS_PER_LINE == 0) {
                    console_printf("\nrt-histogram");
                }
                console_printf(" %lu:%lu", ns(row * width), count);
                printed++;
            }
            row = next;
            count = 0;
        }
        count += i < HISTOGRAM_BUCKETS ? histogram->buckets[i] : 0;
    }
    console_printf("\n");
}

static void print_report(void) {
    struct accounting figures = periodic_snapshot();
    const struct histogram *histogram = periodic_histogram();
    uint64_t periods = figures.jobs + figures.lost;
    uint64_t min = figures.jobs > 0 ? figures.latency_min : 0;
    uint64_t max = figures.latency_max;
    uint64_t average = accounting_average(&figures);
    uint64_t quantile = histogram_quantile(histogram, PER_MILLE);

    /* A bucket's end can lie above the largest value in it. */
    if (quantile > max) {
        quantile = max;
    }
    console_printf("\n%lu periods, %lu lost, %lu late, %lu timer interrupts\n", periods, figures.lost,
                   figures.late, timer_interrupts());
    console_printf("latency           ticks           ns\n");
    print_row("minimum", min);
    print_row("average", average);
    print_row("99.9 %", quantile);
    print_row("maximum", max);
    if (parameters->histogram && figures.jobs > 0) {
        print_histogram(histogram, min, quantile);
        print_plot(histogram);
    }
    console_printf("rt-result periods=%lu lost=%lu late=%lu min_ns=%lu avg_ns=%lu p99_9_ns=%lu "
                   "max_ns=%lu load=%lu ticks_hz=%lu",
                   periods, figures.lost, figures.late, ns(min), ns(average), ns(quantile), ns(max),
                   (uint64_t)parameters->load_percent, timer_frequency());
    if (parameters->table != 0) {
        console_printf(" table=%lu walked=%lu walked_ns=%lu", parameters->table, burner_walked(), ns(burner_ticks()));
    }
    console_printf("\n");
}

static void report(void *unused) {
    (void)unused;
    for (;;) {
        uint32_t kinds = 0;

        xTaskNotifyWait(0, UINT32_MAX, &kinds, portMAX_DELAY);
        print_report();
        if ((kinds & (1u << REPORT_FINAL)) != 0) {
            if (parameters->restart) {
                psci_system_reset();
            }
            psci_system_off();
        }
    }
}

void report_create(const struct parameters *p) {
    parameters = p;
    task = xTaskCreateStatic(report, "report", configMINIMAL_STACK_SIZE, NULL, PRIORITY_REPORT, stack,
                             &task_memory);
}

void report_request(enum report_kind kind) {
    xTaskNotify(task, 1u << kind, eSetBits);
}
