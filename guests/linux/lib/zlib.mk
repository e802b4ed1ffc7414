# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds zlib and its example program minigzip COPIES times below the current directory, each in a
# directory of its own: 1, 2, …
SOURCE := /usr/src/zlib
COPIES := 1
CC := tcc
CFLAGS := -DHAVE_UNISTD_H -I$(SOURCE)
UNITS := $(basename $(notdir $(wildcard $(SOURCE)/*.c)))
DIRS := $(shell seq $(COPIES))

all: $(DIRS:%=%/minigzip)

$(DIRS):
	mkdir $@

define rules
$(1)/%.o: $(SOURCE)/%.c | $(1)
	$(CC) $(CFLAGS) -c -o $$@ $$<

$(1)/minigzip: $(UNITS:%=$(1)/%.o)
	$(CC) -o $$@ $$^
endef
$(foreach dir,$(DIRS),$(eval $(call rules,$(dir))))
